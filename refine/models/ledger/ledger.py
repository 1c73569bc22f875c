"""The ledger: an agent's memories, their mass, and what the agent adds to them."""

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Select, func, select

from refine import clock
from refine.extensions import db
from refine.models.ledger.image import Change
from refine.models.ledger.memory import (
    NOTE,
    AgentMemory,
    MemoryOwner,
    change_memories,
    is_of_kind,
)
from refine.rules.quoted_names import quotes

_READ_AT_ONCE = 200


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
        """Return a query for the kept core memories."""
        return self._mine().where(AgentMemory.is_kept_core)

    def journal(self, at: datetime) -> Select[AgentMemory]:
        """Return a query for the journal memories that the agent is shown at ``at``."""
        return self._mine().where(AgentMemory.is_shown_journal(at))

    def each_core(self) -> Iterator[AgentMemory]:
        """Yield the memories of ``core``, fetched in parts: thousands would take megabytes.

        The transaction must stay open meanwhile.
        """
        fresh = {"yield_per": _READ_AT_ONCE, "populate_existing": True}
        yield from db.session.scalars(self.core().execution_options(**fresh))

    def _mine(self) -> Select[AgentMemory]:
        mine = select(AgentMemory).where(AgentMemory.agent_id == self._agent.id)
        return mine.order_by(AgentMemory.created_at, AgentMemory.id)

    # -- figures ---------------------------------------------------------------------------------

    def core_totals(self) -> tuple[int, int]:
        """Return how many core memories are kept, and their token mass."""
        db.session.flush()
        return self._agent.core_count, self._agent.core_tokens

    def composition(self, at: datetime) -> Composition:
        """Return how many memories there are of each kind at ``at``."""
        return Composition(*db.session.execute(_composition(self._agent.id, at)).one())

    # -- what the agent sees ---------------------------------------------------------------------

    def context(self, at: datetime) -> str | None:
        """Return core and current journal memories as Markdown, oldest first; None if none.

        Lines after the first of a memory are indented, so that content cannot pose as a section or
        as another memory.
        """
        sections = [
            _section("Core memories", db.session.scalars(self.core()).all()),
            _section("Journal of the last week", db.session.scalars(self.journal(at)).all()),
        ]
        return "\n\n".join(filter(None, sections)) or None

    def is_quoted_by(self, name: str, earlier: str) -> bool:
        """Tell whether a name quotes a memory, alone or together with the ``earlier`` name.

        Discarded memories count, too. Only the agent may learn this.
        """
        key, both = self._agent.data_key(), f"{earlier} {name} {earlier}"
        return any(
            quotes(name, text) or (quotes(both, text) and not quotes(earlier, text))
            for memory in db.session.scalars(self._mine())
            for text in [memory.content_under(key)]
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
        """Save a memory, recorded as ``memory_saved``; return it, and whether it already existed.

        An exact duplicate of a kept core memory that has all its tags is not saved again.
        """
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
        """Return a query for the kept core memories with one of these contents, and these tags.

        Leaves out what may be taken back, although the agent saved it.
        """
        return self.core().where(
            AgentMemory.content_hash.in_(hashes),
            AgentMemory.tags.contains(list(tags)),
            ~AgentMemory.could_be_undone(),
        )

    def add_journal_note(self, content: str, at: datetime | None = None) -> AgentMemory:
        """Add a note to the agent's journal, recorded as ``memory_saved``; duplicates are fine."""
        at = at or clock.now()
        self._agent.lock()
        return self._save(self._journal_note(content, at), None, at)

    def add_session_note(self, session_id: uuid.UUID, content: str, at: datetime) -> Change:
        """Add a session's note to the agent's journal; return the change, which it records."""
        return _added(self._journal_note(content, at, session_id=session_id))

    def _journal_note(self, content: str, at: datetime, **fields: Any) -> AgentMemory:
        return AgentMemory(
            agent=self._agent,
            content=content,
            memory_type="journal",
            source=NOTE,
            **_dated(at),
            **fields,
        )

    def _save(
        self, memory: AgentMemory, data: Mapping[str, Any] | None, at: datetime
    ) -> AgentMemory:
        change_memories(
            "memory_saved",
            [_added(memory)],
            agent=self._agent,
            subject=("AgentMemory", memory.id),
            data=data,
            at=at,
        )
        return memory


def _composition(agent_id: int, at: datetime) -> Select[*tuple[Any, ...]]:
    core = is_of_kind("core", at)
    # apart from kept ones: each kind has its own index
    discarded = select(func.count()).where(
        AgentMemory.agent_id == agent_id, is_of_kind("discarded", at)
    )
    return select(
        func.count().filter(core),
        func.coalesce(func.sum(AgentMemory.token_estimate).filter(core), 0),
        func.count().filter(is_of_kind("constitutional", at)),
        func.count().filter(core & AgentMemory.is_locked),
        func.count().filter(is_of_kind("journal", at)),
        func.count().filter(is_of_kind("expired", at)),
        discarded.correlate(None).scalar_subquery(),
    ).where(AgentMemory.agent_id == agent_id, ~is_of_kind("discarded", at))


def _dated(at: datetime) -> dict[str, datetime]:
    return dict.fromkeys(("created_at", "recorded_at", "updated_at"), at)


def _added(memory: AgentMemory) -> Change:
    db.session.add(memory)
    db.session.flush()
    return Change(memory.id, None, memory.image())


def _section(title: str, memories: Sequence[AgentMemory]) -> str | None:
    if not memories:
        return None
    key = memories[0].data_key()
    entries = [
        f"- ({memory.created_at:%Y-%m-%d}) {_indented(memory.content_under(key))}"
        for memory in memories
    ]
    return "\n".join([f"## {title}", "", *entries])


def _indented(content: str) -> str:
    return "\n  ".join(content.splitlines())
