"""Recognizes the memories that the agent has, by their id at the source or their content."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from sqlalchemy import select

from refine import clock
from refine.errors import InvalidValue
from refine.extensions import canonical_json, db
from refine.models import Agent, AgentMemory
from refine.models.columns import in_ids, in_names
from refine.models.ledger.image import is_kept_core
from refine.models.ledger.ledger import ImportedMemory
from refine.models.ledger.memory import CORE, MEMORY_TYPES, NOTE, content_hash
from refine.rules.content import known_tags, memory_content
from refine.sealing import DataKey
from refine.transfer import own
from refine.transfer.rows import Incoming, is_opaque

Status = Literal["added", "already_present", "conflicting"]


class Candidate(NamedTuple):
    memory: ImportedMemory
    given_id: str | None


def candidate(row: Incoming, key: DataKey, source: str, memory_type: str) -> Candidate:
    """Return a row as a memory; ``source`` and ``memory_type`` are defaults; or InvalidValue."""
    memory_type = memory_type if row.memory_type is None else row.memory_type
    if memory_type not in MEMORY_TYPES:
        raise InvalidValue(f"memory_type must be one of {', '.join(MEMORY_TYPES)}")
    text = row.content.strip()
    content = memory_content(text and row.prefix + text)
    memory = ImportedMemory(
        content=content,
        content_hash=content_hash(content, key),
        memory_type=memory_type,
        tags=known_tags(row.tags),
        constitutional=row.constitutional,
        created_at=row.created_at or clock.now(),
        spans_until=row.spans_until,
        discarded_at=row.discarded_at,
        source=row.source or source,
        source_id=_source_id(row, key),
        extra=row.extra,
    )
    return Candidate(memory, row.source_id)


class Recognizer:
    """Tells new memories from known ones; a dry run ``remembers`` what earlier batches added."""

    def __init__(self, agent: Agent, *, remembers: bool) -> None:
        self._agent = agent
        self._origin = own.origin_of(agent)
        self._remembers = remembers
        # content hashes by source and id there
        self._hashes: dict[tuple[str, str], str] = {}
        # of kept core memories by content hash: whether they are constitutional, and their tags
        self._cores: dict[str, list[tuple[bool, set[str]]]] = {}

    def sort(self, batch: Sequence[Candidate]) -> list[Status]:
        """Return what becomes of each; it conflicts if it is known by id, but has another text."""
        if not self._remembers:
            self._hashes.clear()
            self._cores.clear()
        self._load_ids(batch)
        self._load_own(batch)
        self._load_cores(batch)
        return [self._status(each) for each in batch]

    def _status(self, each: Candidate) -> Status:
        known = self._hashes.get((each.memory.source, each.memory.source_id))
        if known is not None:
            return "already_present" if known == each.memory.content_hash else "conflicting"
        if is_kept_core(each.memory.memory_type, each.memory.discarded_at):
            constitutional, tags = each.memory.constitutional, set(each.memory.tags)
            same = self._cores.setdefault(each.memory.content_hash, [])
            if any(flag >= constitutional and tags <= others for flag, others in same):
                return "already_present"
            same.append((constitutional, tags))
        self._hashes[each.memory.source, each.memory.source_id] = each.memory.content_hash
        return "added"

    def _load_ids(self, batch: Sequence[Candidate]) -> None:
        rows = db.session.execute(
            select(AgentMemory.source, AgentMemory.source_id, AgentMemory.content_hash).where(
                AgentMemory.agent_id == self._agent.id,
                in_names(AgentMemory.source, {each.memory.source for each in batch}),
                in_names(AgentMemory.source_id, {each.memory.source_id for each in batch}),
                AgentMemory.source_id.is_not(None),
            )
        )
        self._hashes.update({(row[0] or "", row[1] or ""): row[2] for row in rows})

    def _load_own(self, batch: Sequence[Candidate]) -> None:
        """The time has to match as well: after a restored backup, ids are given out again."""
        own_rows = {
            id_: each.memory
            for each in batch
            if each.memory.source in (own.SOURCE, NOTE)
            and (id_ := own.own_id(self._origin, each.given_id)) is not None
        }
        if not own_rows:
            return
        rows = db.session.execute(
            select(AgentMemory.id, AgentMemory.created_at, AgentMemory.content_hash).where(
                AgentMemory.agent_id == self._agent.id, in_ids(AgentMemory.id, own_rows)
            )
        )
        for id_, created_at, hashed in rows:
            if created_at == own_rows[id_].created_at:
                self._hashes[own_rows[id_].source, own_rows[id_].source_id] = hashed

    def _load_cores(self, batch: Sequence[Candidate]) -> None:
        """Load the kept contents, but none that may be taken back."""
        # if SQL also compared the state, PostgreSQL would scan all core memories
        same = db.session.execute(
            select(
                AgentMemory.content_hash,
                AgentMemory.constitutional,
                AgentMemory.tags,
                AgentMemory.discarded,
                AgentMemory.could_be_undone(),
            ).where(
                AgentMemory.agent_id == self._agent.id,
                AgentMemory.memory_type == CORE,
                in_names(AgentMemory.content_hash, {each.memory.content_hash for each in batch}),
            )
        )
        for hashed, constitutional, tags, is_discarded, may_go in same:
            if not (is_discarded or may_go):
                self._cores.setdefault(hashed, []).append((constitutional, set(tags)))


def _source_id(row: Incoming, key: DataKey) -> str:
    if row.source_id is None:
        at = row.created_at.isoformat() if row.created_at is not None else None
        return _hashed(key, row.within, row.content.strip(), at)
    return row.source_id if is_opaque(row.source_id) else _hashed(key, row.source_id)


def _hashed(key: DataKey, *words: str | None) -> str:
    return key.mac(canonical_json(words), "agent_memories.source_id")
