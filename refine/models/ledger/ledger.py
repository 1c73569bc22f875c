"""The ledger: an agent's memories, their mass, and additions to them."""

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Select, SQLColumnExpression, func, select

from refine import clock
from refine.extensions import db
from refine.models.attested import copy_signed
from refine.models.audit import AuditLog
from refine.models.keys import content_key_place
from refine.models.ledger.image import Change
from refine.models.ledger.memory import (
    NOTE,
    AgentMemory,
    MemoryOwner,
    added,
    change_memories,
    content_of,
    image_of,
    is_of_kind,
)
from refine.rules.content import token_estimate
from refine.rules.quoted_names import quotes
from refine.sealing import DataKey, Place

_READ_AT_ONCE = 200
# What an agent removes outside sessions; ``removed_tokens`` in the data counts kept core memories.
_REMOVALS = ("memory_corrected", "memory_forgotten", "memory_erased")


class Composition(NamedTuple):
    """How many memories an agent has of each kind; ``core_tokens`` is the token mass."""

    core: int
    core_tokens: int
    constitutional: int
    locked: int
    journal_shown: int
    journal_expired: int
    discarded: int


class Ledger:
    """What one agent keeps: core memories for good, journal memories for a week."""

    def __init__(self, agent: MemoryOwner) -> None:
        self._agent = agent

    # -- queries, by original date, then id ------------------------------------------------------

    def core(self) -> Select[AgentMemory]:
        return self._mine().where(AgentMemory.is_kept_core)

    def retired(self) -> Select[AgentMemory]:
        return self._mine().where(AgentMemory.retired_reason.is_not(None), ~AgentMemory.is_erased)

    def kept(self) -> Select[AgentMemory]:
        """Return a query for core and journal memories, also expired ones, without notes."""
        return self._mine().where(~AgentMemory.discarded, ~AgentMemory.is_note())

    def written(self) -> Select[AgentMemory]:
        """Return a query for all that can still be read, discarded too, without notes."""
        return self._mine().where(~AgentMemory.is_erased, ~AgentMemory.is_note())

    def matching(
        self,
        among: Select[AgentMemory],
        text: str | None,
        after: datetime | None = None,
        before: datetime | None = None,
    ) -> list[AgentMemory]:
        """Return the memories with this text; ``after`` is inclusive, ``before`` exclusive, and a
        day of a span is enough.
        """
        if after is not None:
            latest_at = func.coalesce(AgentMemory.spans_until, AgentMemory.created_at)
            among = among.where(latest_at >= after)
        if before is not None:
            among = among.where(AgentMemory.created_at < before)
        wanted, key = (text or "").casefold(), self._agent.data_key()
        found = db.session.scalars(among)
        return [memory for memory in found if wanted in content_of(memory, key).casefold()]

    def journal(self, at: datetime) -> Select[AgentMemory]:
        """Return a query for the journal memories that the agent is shown at ``at``."""
        return self._mine().where(AgentMemory.is_shown_journal(at))

    def each_core(self) -> Iterator[AgentMemory]:
        """Yield ``core`` in parts, to spare megabytes; the transaction must stay open."""
        fresh = {"yield_per": _READ_AT_ONCE, "populate_existing": True}
        yield from db.session.scalars(self.core().execution_options(**fresh))

    def _mine(self) -> Select[AgentMemory]:
        mine = select(AgentMemory).where(AgentMemory.agent_id == self._agent.id)
        return mine.order_by(AgentMemory.created_at, AgentMemory.id)

    # -- figures ---------------------------------------------------------------------------------

    def core_totals(self) -> tuple[int, int]:
        """Return the number of kept core memories, and their token mass."""
        db.session.flush()
        return self._agent.core_count, self._agent.core_tokens

    def composition(self, at: datetime) -> Composition:
        mine = AgentMemory.agent_id == self._agent.id
        core, discarded = is_of_kind("core", at), is_of_kind("discarded", at)
        kept = select(
            func.count().filter(core),
            func.coalesce(func.sum(AgentMemory.token_estimate).filter(core), 0),
            func.count().filter(is_of_kind("constitutional", at)),
            func.count().filter(core & AgentMemory.is_locked),
            func.count().filter(is_of_kind("journal", at)),
            func.count().filter(is_of_kind("expired", at)),
        ).where(mine, ~discarded)
        # apart from kept ones: each kind has its own index
        gone = db.session.scalar(select(func.count()).where(mine, discarded))
        return Composition(*db.session.execute(kept).one(), gone or 0)

    # -- what the agent sees ---------------------------------------------------------------------

    def context(self, at: datetime) -> str | None:
        """Return memories as Markdown, oldest first, indented so that none poses as another."""
        sections = [
            _section("Core memories", db.session.scalars(self.core()).all()),
            _section("Journal of the last week", db.session.scalars(self.journal(at)).all()),
        ]
        return "\n\n".join(filter(None, sections)) or None

    def is_quoted_by(self, name: str, earlier: str) -> bool:
        """Tell whether a name, alone or with the ``earlier`` one, quotes any memory."""
        key, both = self._agent.data_key(), f"{earlier} {name} {earlier}"
        return any(
            quotes(name, text) or (quotes(both, text) and not quotes(earlier, text))
            for memory in db.session.scalars(self._mine().where(~AgentMemory.is_erased))
            for text in [content_of(memory, key)]
        )

    # -- what the agent adds ---------------------------------------------------------------------

    def remember(
        self,
        content: object,
        memory_type: object,
        tags: object = (),
        at: datetime | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> tuple[AgentMemory, bool]:
        """Save a memory; return it, and whether an exact duplicate with all its tags existed."""
        at = at or clock.now()
        memory = AgentMemory(
            agent=self._agent, content=content, memory_type=memory_type, tags=tags, **_dated(at)
        )
        self._agent.lock()
        same = self.select_core_with([memory.content_hash], memory.tags).limit(1)
        if (existing := db.session.scalar(same)) is not None:
            return existing, True
        return self._save(memory, data, at), False

    def select_core_with(
        self, hashes: Collection[str], tags: Sequence[str] = ()
    ) -> Select[AgentMemory]:
        """Select kept core memories by hash and tags, without those that an undo may take back."""
        return self.core().where(
            AgentMemory.content_hash.in_(hashes),
            AgentMemory.tags.contains(list(tags)),
            ~AgentMemory.could_be_undone(),
        )

    def add_journal_note(self, content: str, at: datetime | None = None) -> AgentMemory:
        at = at or clock.now()
        self._agent.lock()
        return self._save(self._journal_note(content, at), None, at)

    def add_session_note(self, session_id: uuid.UUID, content: str, at: datetime) -> Change:
        """Add a session's note to the journal; return the change for its record."""
        return added(self._journal_note(content, at, session_id=session_id))

    def _journal_note(self, content: str, at: datetime, **fields: Any) -> AgentMemory:
        fields |= {"content": content, "memory_type": "journal", "source": NOTE, **_dated(at)}
        return AgentMemory(agent=self._agent, **fields)

    def _save(
        self, memory: AgentMemory, data: Mapping[str, Any] | None, at: datetime
    ) -> AgentMemory:
        about: dict[str, Any] = {"subject": memory, "data": data, "at": at}
        change_memories("memory_saved", [added(memory)], agent=self._agent, **about)
        return memory

    def add_all(
        self, action: str, new: Sequence["ImportedMemory"], *, at: datetime, **record: Any
    ) -> None:
        """Add thousands of memories with one record; the caller has locked the agent."""
        db.session.flush()
        # nothing can be asked of the database during a COPY
        ids, changes = AgentMemory.next_ids(len(new)), list[Change]()
        key, shared = self._agent.data_key(), {"agent_id": self._agent.id, "recorded_at": at}

        def rows() -> Iterator[dict[str, Any]]:
            # each is sealed while PostgreSQL stores the ones before
            for id_, memory in zip(ids, new, strict=True):
                row = {"id": id_, **shared, "updated_at": at, **memory.row(id_, key)}
                changes.append(Change(id_, None, image_of(row)))
                yield row

        copy_signed(AgentMemory, rows(), key)
        change_memories(action, changes, agent=self._agent, at=at, **record)


class ImportedMemory(NamedTuple):
    """A new memory, valid as ``AgentMemory`` would have it."""

    content: str
    content_hash: str
    memory_type: str
    tags: list[str]
    constitutional: bool
    created_at: datetime
    spans_until: datetime | None
    discarded_at: datetime | None
    source: str
    source_id: str
    extra: str | None

    def row(self, id_: int, key: DataKey) -> dict[str, Any]:
        """Return its columns by attribute, and its texts in clear."""
        texts = {"content": self.content, "extra": self.extra}
        place = content_key_place(id_)
        wrapped = key.wrap_new(place)
        content_key = key.unwrap(wrapped, place)
        sealed = {
            f"sealed_{name}": content_key.seal(text, Place(f"agent_memories.{name}", id_))
            for name, text in texts.items()
            if text is not None
        }
        derived = {"content_key": wrapped, "token_estimate": token_estimate(self.content)}
        return {**self._asdict(), **derived, **sealed}


def removed_outside_sessions(
    agent_id: int | SQLColumnExpression[int], since: datetime
) -> Select[int]:
    """Select how many tokens went outside sessions since then, without what was restored."""
    tokens = AuditLog.data["removed_tokens"].as_integer()
    memory_id = AuditLog.data[("memories", "0", "id")].as_string().cast(BigInteger)
    return (
        select(func.coalesce(func.sum(tokens), 0))
        .select_from(AuditLog)
        .join(AgentMemory, AgentMemory.id == memory_id)
        .where(
            AuditLog.agent_id == agent_id,
            AuditLog.action.in_(_REMOVALS),
            AuditLog.created_at > since,
            tokens > 0,
            # not what was restored since, even if it went again
            AgentMemory.discarded_at <= AuditLog.created_at,
        )
    )


def _dated(at: datetime) -> dict[str, datetime]:
    return dict.fromkeys(("created_at", "recorded_at", "updated_at"), at)


def _section(title: str, memories: Sequence[AgentMemory]) -> str | None:
    if not memories:
        return None
    key = memories[0].agent.data_key()
    entries = [f"- ({memory.days}) {_indented(content_of(memory, key))}" for memory in memories]
    return "\n".join([f"## {title}", "", *entries])


def _indented(content: str) -> str:
    return "\n  ".join(content.splitlines())
