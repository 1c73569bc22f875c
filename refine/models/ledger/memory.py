"""One memory: what it is, and the verbs that change it, each with its audit record."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    ColumnElement,
    Connection,
    Index,
    and_,
    event,
    inspect,
    or_,
    select,
    text,
)
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapper

from refine import clock
from refine.errors import Refused
from refine.extensions import Base, Instant, db
from refine.models.audit import AuditLog
from refine.models.audit.chain import Actor
from refine.models.columns import next_ids, row_id
from refine.models.ledger.image import Change, recorded
from refine.models.ledger.kept import is_kept_core, kept_core
from refine.models.ledger.row import (
    ID_SEQUENCE,
    JOURNAL_SHOWN_FOR,
    MEMORY_TYPES,
    MemoryOwner,
    MemoryRow,
)
from refine.models.people import recording
from refine.rules.content import IMMUTABLE_TAGS, MAX_CONTENT_CHARACTERS, TAGS
from refine.rules.tokens import CHARACTERS_PER_TOKEN
from refine.sealing import DataKey

# The agent's columns that triggers write when a memory changes.
FIGURES = ("core_tokens", "core_count", "ledger_version")

# The ``source`` of what Refine itself writes into a journal.
NOTE = "note"

_REWRITE_OR_RESTORE = ("memory_refinement_update", "memory_restored")


class AgentMemory(MemoryRow, Base):
    """One memory: core (permanent, part of every prompt) or journal (shown for a week).

    Every flush sets the row's digest. Discarding is soft: everything can be restored.
    """

    __table_args__ = (
        CheckConstraint(f"memory_type IN {MEMORY_TYPES}", name="memory_type"),
        CheckConstraint(f"tags <@ ARRAY{list(TAGS)}", name="tags"),
        CheckConstraint(
            f"token_estimate BETWEEN 1 AND {MAX_CONTENT_CHARACTERS // CHARACTERS_PER_TOKEN}",
            name="token_estimate",
        ),
        Index(
            "ix_agent_memories_kept",
            "agent_id",
            "memory_type",
            "created_at",
            "id",
            postgresql_where=text("discarded_at IS NULL"),
            postgresql_include=["token_estimate"],
        ),
        Index(
            "ix_agent_memories_discarded",
            "agent_id",
            "created_at",
            "id",
            postgresql_where=text("discarded_at IS NOT NULL"),
        ),
        # of others, no copies are looked for by it
        Index(
            "ix_agent_memories_content_hash",
            "agent_id",
            "content_hash",
            postgresql_where=text("memory_type = 'core'"),
        ),
        Index(
            "ix_agent_memories_session_id",
            "session_id",
            postgresql_where=text("session_id IS NOT NULL"),
        ),
        Index(
            "uq_agent_memories_source",
            "agent_id",
            "source",
            "source_id",
            unique=True,
            postgresql_where=text("source_id IS NOT NULL"),
        ),
    )

    # -- what it is, in Python and in SQL --------------------------------------------------------

    @hybrid_property
    def discarded(self) -> bool:
        """Whether the memory was discarded: kept in the database, shown nowhere."""
        return self.discarded_at is not None

    @discarded.inplace.expression
    @classmethod
    def _discarded(cls) -> ColumnElement[bool]:
        return cls.discarded_at.is_not(None)

    @hybrid_property
    def is_kept_core(self) -> bool:
        """Whether this is a core memory that was not discarded."""
        return is_kept_core(self.memory_type, self.discarded_at)

    @is_kept_core.inplace.expression
    @classmethod
    def _is_kept_core(cls) -> ColumnElement[bool]:
        return kept_core(cls.memory_type, cls.discarded_at)

    @classmethod
    def is_shown_journal(cls, at: Instant) -> ColumnElement[bool]:
        """Return the SQL condition that it is a journal memory shown to its agent at ``at``."""
        return and_(cls._is_kept_journal(), cls.created_at > at - JOURNAL_SHOWN_FOR)

    @classmethod
    def is_expired_journal(cls, at: Instant) -> ColumnElement[bool]:
        """Return the SQL condition that it is kept in the journal, but no longer shown."""
        return and_(cls._is_kept_journal(), cls.created_at <= at - JOURNAL_SHOWN_FOR)

    @classmethod
    def _is_kept_journal(cls) -> ColumnElement[bool]:
        return and_(cls.memory_type == "journal", cls.discarded_at.is_(None))

    @classmethod
    def is_note(cls) -> ColumnElement[bool]:
        """Return the SQL condition that this journal memory is a note of Refine's own.

        Nothing else that a session makes is in the journal; its closing note has no ``source``.
        """
        return or_(cls.source.is_not_distinct_from(NOTE), cls.session_id.is_not(None))

    @classmethod
    def may_be_taken_back(cls) -> ColumnElement[bool]:
        """Return the SQL condition that it may go although its agent saves the same again.

        An undo may take back what a session made or rewrote, and what was restored.
        """
        rewritten_or_restored = select(AuditLog.id).where(
            AuditLog.agent_id == cls.agent_id,
            AuditLog.action.in_(_REWRITE_OR_RESTORE),
            AuditLog.is_about_memory(cls.id),
        )
        # few memories were changed, so records are looked for last
        is_changed = cls.updated_at != cls.recorded_at
        return or_(cls.session_id.is_not(None), and_(is_changed, rewritten_or_restored.exists()))

    @hybrid_property
    def is_locked(self) -> bool:
        """Whether no session may delete, merge or rewrite it."""
        return self.edit_lock is not None

    @is_locked.inplace.expression
    @classmethod
    def _is_locked(cls) -> ColumnElement[bool]:
        return or_(cls.constitutional, cls.tags.overlap(sorted(IMMUTABLE_TAGS)))

    # -- verbs -----------------------------------------------------------------------------------

    def discard(self, *, user: Actor | None = None, at: datetime | None = None) -> None:
        """Discard the memory, recorded as ``memory_discarded``; nothing happens the second time.

        Refused for a constitutional memory.
        """
        self._lock()
        if self.constitutional:
            raise Refused(f"Cannot discard constitutional memory #{self.id}")
        if not self.discarded:
            self._change("memory_discarded", user, at, discarded_at=clock.iso(at or clock.now()))

    def restore(self, *, user: Actor | None = None, at: datetime | None = None) -> None:
        """Restore a discarded memory, constitutional or not; recorded as ``memory_restored``."""
        self._lock()
        if self.discarded:
            self._change("memory_restored", user, at, discarded_at=None)

    def set_constitutional(
        self, constitutional: bool, *, user: Actor | None = None, at: datetime | None = None
    ) -> None:
        """Set or lift the flag, recorded as ``memory_constitutional_toggle``."""
        self._lock()
        if self.constitutional != constitutional:
            self._change("memory_constitutional_toggle", user, at, constitutional=constitutional)

    # -- many at once ----------------------------------------------------------------------------

    @classmethod
    def lock_rows(cls, agent: MemoryOwner, ids: Iterable[int]) -> "dict[int, AgentMemory]":
        """Return those of the agent's memories by id, reloaded and locked in order of id.

        RowAltered if one of them was changed outside the application: a change would sign it.
        """
        if not (wanted := sorted(ids)):
            return {}
        rows = db.session.scalars(
            select(cls)
            .where(cls.agent_id == agent.id, cls.id.in_(wanted))
            .order_by(cls.id)
            .with_for_update()
            .execution_options(populate_existing=True)
        )
        found = {memory.id: memory for memory in rows}
        key = agent.data_key()
        for memory in found.values():
            memory.require_genuine(key)
        return found

    @staticmethod
    def next_ids(count: int) -> list[int]:
        """Return ids for that many new memories, in order, with one query."""
        return next_ids(ID_SEQUENCE, count)

    def _lock(self) -> None:
        db.session.flush()
        if not inspect(self).persistent:
            raise Refused("the memory is not stored yet; add it to the database's session first")
        self.agent.lock()
        self.lock_rows(self.agent, [self.id])

    def _change(
        self, action: str, user: Actor | None, at: datetime | None, **fields: object
    ) -> None:
        before = self.image()
        change_memories(
            action,
            [Change(self.id, before, {**before, **fields})],
            agent=self.agent,
            user=user,
            subject=("AgentMemory", self.id),
            data=fields,
            at=at,
        )


def change_memories(
    action: str,
    changes: list[Change],
    *,
    agent: MemoryOwner,
    data: Mapping[str, Any] | None = None,
    **record: Any,
) -> AuditLog:
    """Lock the memories, write the record, then change them; return the record.

    The record comes first because it is what permits a change to a constitutional memory. A change
    without ``before`` is about a memory that was just added, and stays as it is. ``record`` goes to
    ``recording.record``.
    """
    ids = {change.memory_id for change in changes if change.before is not None}
    memories = AgentMemory.lock_rows(agent, ids) if ids else {}
    db.session.flush()
    chain, key, mass = agent.chain, agent.data_key(), agent.core_tokens
    about = about_changes(changes, key, mass, data)
    log = recording.record(action, chain=chain, **about, **record)
    apply_changes(changes, memories, log.created_at)
    return log


def about_changes(
    changes: Iterable[Change],
    key: DataKey,
    mass: int,
    data: Mapping[str, Any] | None,
    sealed: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What a record of changes holds; ``mass`` is the token mass before them."""
    listed = list(changes)
    image_data, image_sealed = recorded(listed, key)
    mass_after = mass + sum(change.mass_difference for change in listed)
    return {
        "data": {**(data or {}), **image_data, "mass_after": mass_after},
        "sealed": {**(sealed or {}), **image_sealed},
    }


def apply_changes(
    changes: Iterable[Change], memories: Mapping[int, AgentMemory], at: datetime
) -> None:
    """Change locked memories, after the record of it is written."""
    for change in changes:
        if change.before is not None:
            memories[change.memory_id].apply(change.after, at)
    db.session.flush()


def is_of_kind(kind: str, at: Instant) -> ColumnElement[bool]:
    """Return the SQL condition that a memory is of this kind at ``at``: one of its keys below."""
    conditions: dict[str, Callable[[], ColumnElement[bool]]] = {
        "core": lambda: and_(AgentMemory.is_kept_core),
        "constitutional": lambda: AgentMemory.is_kept_core & AgentMemory.constitutional,
        "journal": lambda: AgentMemory.is_shown_journal(at),
        "expired": lambda: AgentMemory.is_expired_journal(at),
        "discarded": lambda: and_(AgentMemory.discarded),
    }
    return conditions[kind]()


@event.listens_for(AgentMemory, "after_insert")
@event.listens_for(AgentMemory, "after_update")
def _forget_figures(_mapper: Mapper[Any], _connection: Connection, memory: AgentMemory) -> None:
    """A trigger has counted what was written: the agent's figures are read again when needed."""
    if inspect(memory.agent).persistent:
        db.session.expire(memory.agent, FIGURES)


@event.listens_for(AgentMemory, "before_insert")
def _sign_new_memory(_mapper: Mapper[Any], connection: Connection, memory: AgentMemory) -> None:
    """The digest covers the id, so the id must be known before the row is written."""
    row_id(memory, connection)
    memory.sign()


@event.listens_for(AgentMemory, "before_update")
def _sign_changed_memory(
    _mapper: Mapper[Any], _connection: Connection, memory: AgentMemory
) -> None:
    if db.session.is_modified(memory, include_collections=False):
        if not inspect(memory).attrs.updated_at.history.has_changes():
            memory.updated_at = clock.now()
        memory.sign()
