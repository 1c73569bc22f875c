"""Rows as memories to be stored, and which of them the agent already has.

A memory is recognized by its id at the source, or by its content.
"""

import json
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import select

from refine.errors import InvalidValue
from refine.extensions import canonical_json, db
from refine.models import Agent, AgentMemory
from refine.models.columns import one_of_ids, one_of_names
from refine.models.ledger import MEMORY_TYPES, content_hash, is_kept_core
from refine.models.ledger.memory import CORE, NOTE
from refine.rules.content import MAX_CONTENT_CHARACTERS, known_tags, memory_content
from refine.rules.splitting import split
from refine.sealing import DataKey
from refine.transfer import own
from refine.transfer.rows import Incoming, extra_json, is_opaque

# A longer row would be split into hundreds of memories.
MAX_ROW_CHARACTERS = 2_000_000

_ID_OF_PART = re.compile(r".*\.[0-9]+")


class Piece(NamedTuple):
    """A memory to be stored: all of a row, or one part of a row that was split."""

    row: Incoming
    content: str
    memory_type: str
    tags: list[str]
    source: str
    row_id: str
    content_hash: str
    part: int = 1
    parts: int = 1

    @property
    def is_kept_core(self) -> bool:
        return is_kept_core(self.memory_type, self.row.discarded_at)

    @property
    def source_id(self) -> str:
        return self.row_id if self.parts == 1 else f"{self.row_id}.{self.part}"

    @property
    def extra(self) -> str | None:
        """The row's other fields as JSON; a part adds its number and the id of the whole."""
        if self.parts == 1:
            return self.row.extra
        link = {"part": self.part, "parts": self.parts, "part_of": self.row_id}
        return extra_json({**_fields(self.row.extra), **link})


def pieces_of(row: Incoming, key: DataKey, source: str, memory_type: str) -> list[Piece]:
    """Return a row's memories; InvalidValue if it cannot be stored.

    ``source`` and ``memory_type`` are for rows without their own.
    """
    memory_type = memory_type if row.memory_type is None else row.memory_type
    if memory_type not in MEMORY_TYPES:
        raise InvalidValue(f"memory_type must be one of {', '.join(MEMORY_TYPES)}")
    if len(row.content) > MAX_ROW_CHARACTERS:
        raise InvalidValue(f"must not have more than {MAX_ROW_CHARACTERS:,} characters")
    tags = known_tags(row.tags)
    parts = split(row.content, MAX_CONTENT_CHARACTERS - len(row.prefix)) or [""]
    contents = [memory_content(part and row.prefix + part) for part in parts]
    row_id = _row_id(row, key)
    return [
        Piece(
            row,
            content,
            memory_type,
            tags,
            row.source or source,
            row_id,
            content_hash(content, key),
            number,
            len(contents),
        )
        for number, content in enumerate(contents, 1)
    ]


def _fields(extra: str | None) -> dict[str, Any]:
    try:
        fields = json.loads(extra or "{}")
    except (ValueError, RecursionError):
        fields = None
    return fields if isinstance(fields, dict) else {"extra": extra}


class Recognizer:
    """Tells the new memories of an import from those that the agent has.

    A dry run stores nothing, so it ``remembers`` what was new in earlier batches.
    """

    def __init__(self, agent: Agent, *, remembers: bool) -> None:
        self._agent = agent
        self._origin = own.origin_of(agent)
        self._remembers = remembers
        self._forget()

    def _forget(self) -> None:
        # content hashes by source and id there
        self._hashes: dict[tuple[str, str], str] = {}
        # of kept core memories by content hash: whether they are constitutional, and their tags
        self._cores: dict[str, list[tuple[bool, set[str]]]] = {}

    def sort(self, batch: Iterable[Sequence[Piece]]) -> tuple[list[Piece], int]:
        """Return which pieces are new, and how many are known by id but have another text.

        The pieces of a row stay together.
        """
        rows = list(batch)
        if not self._remembers:
            self._forget()
        pieces = list(chain.from_iterable(rows))
        self._load_ids(pieces)
        self._load_own(pieces)
        self._load_cores(pieces)
        new, conflicting = list[Piece](), 0
        for row in rows:
            if self._has_row(row[0]):
                conflicting += sum(
                    self._hashes.get((each.source, each.source_id)) != each.content_hash
                    for each in row
                )
            elif not self._has_content(row):
                new += row
                for piece in row:
                    self._add(piece)
        return new, conflicting

    def _has_row(self, first: Piece) -> bool:
        """Tell whether the row is known, even if it was split differently then."""
        ids = (first.row_id, f"{first.row_id}.1")
        return any((first.source, id_) in self._hashes for id_ in ids)

    def _has_content(self, row: Sequence[Piece]) -> bool:
        """Tell whether an unsplit core memory is kept with the same content, as well protected."""
        first = row[0]
        same = self._cores.get(first.content_hash, ()) if first.is_kept_core else ()
        return len(row) == 1 and any(
            is_constitutional >= first.row.constitutional and tags.issuperset(first.tags)
            for is_constitutional, tags in same
        )

    def _add(self, piece: Piece) -> None:
        self._hashes[piece.source, piece.source_id] = piece.content_hash
        if piece.is_kept_core:
            protection = (piece.row.constitutional, set(piece.tags))
            self._cores.setdefault(piece.content_hash, []).append(protection)

    # -- what is stored --------------------------------------------------------------------------

    def _load_ids(self, pieces: Sequence[Piece]) -> None:
        """Load which ids were imported before, including memories discarded since."""
        ids = {piece.source_id for piece in pieces}
        ids |= {id_ for each in pieces for id_ in (each.row_id, f"{each.row_id}.1")}
        rows = db.session.execute(
            select(AgentMemory.source, AgentMemory.source_id, AgentMemory.content_hash).where(
                AgentMemory.agent_id == self._agent.id,
                AgentMemory.source == one_of_names({piece.source for piece in pieces}),
                AgentMemory.source_id == one_of_names(ids),
                AgentMemory.source_id.is_not(None),
            )
        )
        self._hashes.update({(row[0] or "", row[1] or ""): row[2] for row in rows})

    def _load_own(self, pieces: Sequence[Piece]) -> None:
        """Load which rows are the agent's own memories, in a full export that came back.

        The time has to match as well: after a restored backup, ids are given out again.
        """
        own_rows = {
            id_: piece
            for piece in pieces
            if piece.source in (own.SOURCE, NOTE)
            and (id_ := own.own_id(self._origin, piece.row.source_id)) is not None
        }
        if not own_rows:
            return
        rows = db.session.execute(
            select(AgentMemory.id, AgentMemory.created_at, AgentMemory.content_hash).where(
                AgentMemory.agent_id == self._agent.id, AgentMemory.id == one_of_ids(own_rows)
            )
        )
        for id_, created_at, hashed in rows:
            if created_at == own_rows[id_].row.created_at:
                self._hashes[own_rows[id_].source, own_rows[id_].row_id] = hashed

    def _load_cores(self, pieces: Sequence[Piece]) -> None:
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
                AgentMemory.content_hash == one_of_names({each.content_hash for each in pieces}),
            )
        )
        for hashed, constitutional, tags, is_discarded, may_go in same:
            if not (is_discarded or may_go):
                self._cores.setdefault(hashed, []).append((constitutional, set(tags)))


def _row_id(row: Incoming, key: DataKey) -> str:
    """Return the row's id at the source; a hash of the row if there is none.

    Hashed if it could be words, or the id of a part, which only Refine's own exports name.
    """
    if row.source_id is None:
        at = row.created_at.isoformat() if row.created_at is not None else None
        return _hashed(key, row.within, row.content.strip(), at)
    could_be_a_part = row.source is None and _ID_OF_PART.fullmatch(row.source_id) is not None
    is_kept = is_opaque(row.source_id) and not could_be_a_part
    return row.source_id if is_kept else _hashed(key, row.source_id)


def _hashed(key: DataKey, *words: str | None) -> str:
    return key.mac(canonical_json(words), "agent_memories.source_id")
