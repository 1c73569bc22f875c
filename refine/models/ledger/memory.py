"""One memory, and the verbs that change it, each with its audit record."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, Protocol, get_args

import sqlalchemy
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ColumnElement,
    Connection,
    ForeignKey,
    Index,
    Text,
    and_,
    event,
    inspect,
    or_,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.ext.mutable import MutableList
from sqlalchemy.orm import Mapped, Mapper, mapped_column, relationship, validates

from refine import clock
from refine.errors import Erased, InvalidValue, Refused
from refine.extensions import Base, Instant, UtcDateTime, db
from refine.models.attested import Attested, write
from refine.models.audit import AuditLog, Chain, Event
from refine.models.audit.record import Actor
from refine.models.columns import BoolFalse, Created, Sealed, Updated, constant, in_ids, index
from refine.models.keys import SealedText, content_key_place, next_ids, place_of, row_id
from refine.models.ledger.image import (
    CONTENT_KEY,
    Change,
    Image,
    image_fields,
    is_kept_core,
    recorded,
    state_digest,
)
from refine.rules.content import (
    IMMUTABLE_TAGS,
    MAX_CONTENT_CHARACTERS,
    TAGS,
    comparable,
    known_tags,
    memory_content,
    storable_or_none,
    token_estimate,
)
from refine.rules.second_reading import RETIRING
from refine.sealing import ContentKey, DataKey, Place

MemoryType = Literal["core", "journal"]
MEMORY_TYPES: tuple[MemoryType, ...] = get_args(MemoryType)

# What locks a memory, in the order in which it is reported.
Lock = Literal["constitutional", "immutable"]
LOCKS: tuple[Lock, ...] = get_args(Lock)

# How long a journal memory is shown to its agent. Prompts, tools and pages say "one week" and "the
# last week".
JOURNAL_SHOWN_FOR = timedelta(weeks=1)

# The agent's columns that triggers write when a memory changes.
FIGURES = ("core_tokens", "core_count", "ledger_version")

# The ``source`` of what Refine itself writes into a journal.
NOTE = "note"
# The ``source`` of what an agent itself put in place of a memory.
CORRECTION = "correction"

CORE = constant("core")

_IDS = sqlalchemy.Sequence("agent_memories_id_seq")
_REWRITE_OR_RESTORE = ("memory_refinement_update", "memory_restored")


class MemoryOwner(Protocol):
    """The agent, as far as memories need to know it."""

    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def chain(self) -> Chain: ...
    @property
    def core_count(self) -> int: ...
    @property
    def core_tokens(self) -> int: ...
    def data_key(self) -> DataKey: ...
    def lock(self) -> None: ...


def content_hash(content: str, key: DataKey) -> str:
    """Return the keyed hash by which exact duplicates are found: see ``comparable``."""
    return key.mac(comparable(content), "agent_memories.content_hash")


def _index(name: str, *columns: str, where: str, **options: Any) -> Index:
    options["postgresql_where"] = text(where)
    return Index(f"ix_agent_memories_{name}", "agent_id", *columns, **options)


class AgentMemory(Attested, Base):
    """One memory, signed under its agent's key. Discarding is soft: everything can be restored."""

    __tablename__ = "agent_memories"

    __table_args__ = (
        CheckConstraint(f"memory_type IN {MEMORY_TYPES}", name="memory_type"),
        CheckConstraint(f"tags <@ ARRAY{list(TAGS)}", name="tags"),
        CheckConstraint(
            f"retired_reason IS NULL OR retired_reason IN {RETIRING} AND discarded_at IS NOT NULL",
            name="retired_reason",
        ),
        CheckConstraint(
            f"token_estimate BETWEEN 1 AND {MAX_CONTENT_CHARACTERS}",
            name="token_estimate",
        ),
        _index(
            "kept",
            *("memory_type", "created_at", "id"),
            where="discarded_at IS NULL",
            postgresql_include=["token_estimate"],
        ),
        _index("discarded", "created_at", "id", where="discarded_at IS NOT NULL"),
        # of others, no copies are looked for by it
        _index("content_hash", "content_hash", where="memory_type = 'core'"),
        index("agent_memories", "session_id", where="session_id IS NOT NULL"),
        Index(
            "uq_agent_memories_source",
            *("agent_id", "source", "source_id"),
            unique=True,
            postgresql_where=text("source_id IS NOT NULL"),
        ),
    )

    id: Mapped[int] = mapped_column(
        BigInteger,
        _IDS,
        primary_key=True,
        server_default=text("nextval('agent_memories_id_seq')"),
    )
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    memory_type: Mapped[str] = mapped_column(Text)
    sealed_content: Mapped[Sealed] = mapped_column("content")
    constitutional: Mapped[BoolFalse]
    # mutable, so that tags changed in place are stored, with a digest that covers them
    tags: Mapped[list[str]] = mapped_column(
        MutableList.as_mutable(ARRAY(Text)), default=list, server_default=text("'{}'")
    )
    content_hash: Mapped[str] = mapped_column(Text)
    token_estimate: Mapped[int]
    discarded_at: Mapped[datetime | None]
    # of one that was discarded because it is outdated or wrong: which of the two, and its successor
    retired_reason: Mapped[str | None] = mapped_column(Text)
    replaced_by_id: Mapped[int | None] = mapped_column(ForeignKey("agent_memories.id"))
    created_at: Mapped[Created]
    # of a merge: the latest date of what it says, if that is another day
    spans_until: Mapped[datetime | None]
    recorded_at: Mapped[Created]
    updated_at: Mapped[Updated]
    source: Mapped[str | None] = mapped_column(Text)
    source_id: Mapped[str | None] = mapped_column(Text)
    sealed_extra: Mapped[Sealed | None] = mapped_column("extra")
    # NULL: the memory was erased
    content_key: Mapped[Sealed | None]
    session_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("refinement_sessions.id"))

    # by name, because this module may not import agents
    agent: Mapped[MemoryOwner] = relationship("Agent")

    extra = SealedText(storable_or_none)

    def __init__(
        self, *, agent: MemoryOwner, content: object, memory_type: object = "core", **fields: Any
    ) -> None:
        # agent and id come first: the rest is sealed with the one, and bound to the other
        self.agent, self.agent_id, self.id = agent, agent.id, fields.pop("id", None)
        self.content_key = agent.data_key().wrap_new(content_key_place(row_id(self)))
        dates = dict.fromkeys(("created_at", "recorded_at", "updated_at"), clock.now())
        given = {"memory_type": memory_type, "constitutional": False, "tags": [], **dates, **fields}
        super().__init__(content=content, **given)

    def data_key(self) -> ContentKey:
        return _key_of(self, self.agent.data_key())

    def signing_key(self) -> DataKey:
        return self.agent.data_key()

    @hybrid_property
    def is_erased(self) -> bool:
        return self.content_key == None  # noqa: E711

    @property
    def row_name(self) -> str:
        return f"memory {self.id}"

    @property
    def content(self) -> str:
        return content_of(self, self.agent.data_key())

    @content.setter
    def content(self, value: object) -> None:
        content, key = memory_content(value), self.agent.data_key()
        if self.sealed_content is not None and content == content_of(self, key):
            return
        self.sealed_content = _key_of(self, key).seal(content, place_of(self, "content"))
        self.content_hash = content_hash(content, key)
        self.token_estimate = token_estimate(content)

    # -- validation ------------------------------------------------------------------------------

    @validates("tags")
    def _valid_tags(self, _key: str, tags: Any) -> list[str]:
        return known_tags(tags)

    @validates("agent")
    def _valid_agent(self, _key: str, agent: MemoryOwner) -> MemoryOwner:
        if self.agent_id is not None and self.agent_id != agent.id:
            raise InvalidValue("a memory cannot move to another agent: it is sealed for its own")
        return agent

    @validates("memory_type")
    def _valid_type(self, _key: str, memory_type: Any) -> str:
        if memory_type not in MEMORY_TYPES:
            raise InvalidValue(f"memory_type must be one of {', '.join(MEMORY_TYPES)}")
        return str(memory_type)

    # -- what it is, in Python and in SQL --------------------------------------------------------

    @hybrid_property
    def discarded(self) -> bool:
        return self.discarded_at != None  # noqa: E711

    @property
    def core_tokens(self) -> int:
        """What it counts in the token mass."""
        return self.token_estimate if self.is_kept_core else 0

    @hybrid_property
    def is_kept_core(self) -> bool:
        return is_kept_core(self.memory_type, self.discarded_at)

    @is_kept_core.inplace.expression
    @classmethod
    def _is_kept_core(cls) -> ColumnElement[bool]:
        return and_(cls.memory_type == CORE, cls.discarded_at.is_(None))

    @classmethod
    def is_kept_journal(cls) -> ColumnElement[bool]:
        return and_(cls.memory_type == "journal", cls.discarded_at.is_(None))

    @classmethod
    def is_shown_journal(cls, at: Instant) -> ColumnElement[bool]:
        return and_(cls.is_kept_journal(), cls.created_at > at - JOURNAL_SHOWN_FOR)

    @classmethod
    def is_note(cls) -> ColumnElement[bool]:
        """Match journal memories that are notes of Refine's own."""
        return cls.source.is_not_distinct_from(NOTE)

    @classmethod
    def could_be_undone(cls) -> ColumnElement[bool]:
        """Match memories that an undo may take back: a session's, and restored ones."""
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
        return self.edit_lock is not None

    @is_locked.inplace.expression
    @classmethod
    def _is_locked(cls) -> ColumnElement[bool]:
        return or_(cls.constitutional, cls.tags.overlap(sorted(IMMUTABLE_TAGS)))

    @property
    def edit_lock(self) -> Lock | None:
        """What keeps sessions from deleting, merging or rewriting it: its flag, or a tag."""
        if self.constitutional:
            return "constitutional"
        return None if IMMUTABLE_TAGS.isdisjoint(self.tags) else "immutable"

    @property
    def latest_at(self) -> datetime:
        return self.spans_until or self.created_at

    @property
    def days(self) -> str:
        return clock.days(self.created_at, self.spans_until)

    def ledger_entry(self, key: DataKey | None = None) -> dict[str, Any]:
        """Return JSON values for a session; ``key``: the agent's, if already opened."""
        entry = {
            "id": self.id,
            "date": self.days,
            "tokens": self.token_estimate,
            "constitutional": self.constitutional,
            "tags": list(self.tags),
            "content": content_of(self, key or self.agent.data_key()),
        }
        if self.retired_reason is not None:
            entry |= {"retired": self.retired_reason, "replaced_by": self.replaced_by_id}
        return entry

    def dated_content(self) -> dict[str, str]:
        return {self.days: self.content}

    # -- images ----------------------------------------------------------------------------------

    def image(self) -> Image:
        """Return the flushed row as JSON values, contents in clear."""
        return image_of({field: getattr(self, field) for field in image_fields()})

    def apply(self, change: Change, at: datetime) -> None:
        """Set what ``change`` alters, as of ``at``."""
        fields, altered = image_fields(), change.altered()
        if CONTENT_KEY in altered:
            self._erase(at)
            return
        for field in altered:
            setattr(self, field, _from_json(change.after[field], fields[field]))
        if altered:
            self.updated_at = at

    def _erase(self, at: datetime) -> None:
        """Destroy the key, and all that could still say or confirm something of the texts."""
        self.sealed_content, self.sealed_extra, self.content_key = b"", None, None
        self.content_hash, self.source_id = "", None
        self.discarded_at, self.updated_at = self.discarded_at or at, at

    @property
    def state_digest(self) -> str:
        return state_digest_of(self, self.agent.data_key())

    # -- verbs -----------------------------------------------------------------------------------

    def discard(self, *, user: Actor | None = None, at: datetime | None = None) -> None:
        """Discard the memory once; Refused for a constitutional one."""
        self._lock()
        if self.constitutional:
            raise Refused(f"Cannot discard constitutional memory #{self.id}")
        if not self.discarded:
            self._change("memory_discarded", user, at, discarded_at=clock.iso(at or clock.now()))

    def restore(self, *, user: Actor | None = None, at: datetime | None = None) -> None:
        self._lock()
        if self.discarded:
            unset = dict.fromkeys(("discarded_at", "retired_reason", "replaced_by_id"))
            self._change("memory_restored", user, at, **unset)

    def set_constitutional(
        self, constitutional: bool, *, user: Actor | None = None, at: datetime | None = None
    ) -> None:
        self._lock()
        if self.constitutional != constitutional:
            self._change("memory_constitutional_toggle", user, at, constitutional=constitutional)

    # -- many at once ----------------------------------------------------------------------------

    @classmethod
    def lock_rows(cls, agent: MemoryOwner, ids: Iterable[int]) -> "dict[int, AgentMemory]":
        """Reload and lock the agent's memories by id, in order; RowAltered for an altered one."""
        if not (wanted := sorted(ids)):
            return {}
        rows = db.session.scalars(
            select(cls)
            .where(cls.agent_id == agent.id, in_ids(cls.id, wanted))
            .order_by(cls.id)
            .with_for_update()
            .execution_options(populate_existing=True)
        )
        found = {memory.id: memory for memory in rows}
        for memory in found.values():
            memory.require_genuine()
        return found

    @staticmethod
    def next_ids(count: int) -> list[int]:
        return db.session.scalar(next_ids(_IDS, count)) or []

    def _lock(self) -> None:
        db.session.flush()
        if not inspect(self).persistent:
            raise Refused("the memory is not stored yet; add it to the database's session first")
        self.agent.lock()
        self.lock_rows(self.agent, [self.id])
        if self.is_erased:
            raise Refused(f"Memory #{self.id} was erased for good")

    def _change(
        self, action: str, user: Actor | None, at: datetime | None, **fields: object
    ) -> None:
        before = self.image()
        change_memories(
            action,
            [Change(self.id, before, {**before, **fields})],
            agent=self.agent,
            locked={self.id: self},
            user=user,
            subject=self,
            data=fields,
            at=at,
        )


class MemoryEdit(NamedTuple):
    """Changes of memories that one record tells of; ``about`` goes to ``Event``."""

    action: str
    changes: Sequence[Change]
    about: Mapping[str, Any]


def change_memories(
    action: str,
    changes: Sequence[Change],
    *,
    agent: MemoryOwner,
    locked: Mapping[int, AgentMemory] | None = None,
    at: datetime | None = None,
    **about: Any,
) -> AuditLog:
    """Write a record, then change the memories; return the record. See ``change_in_turn``."""
    edit = MemoryEdit(action, changes, about)
    return change_in_turn([edit], agent=agent, locked=locked, at=at)[0]


def change_in_turn(
    edits: Sequence[MemoryEdit],
    *,
    agent: MemoryOwner,
    locked: Mapping[int, AgentMemory] | None = None,
    at: datetime | None = None,
) -> list[AuditLog]:
    """Write records of edits, then change the memories: the records permit constitutional changes.
    A change without ``before`` is of a memory just ``added``; ``locked`` ones are checked already.
    """
    changes = [change for edit in edits for change in edit.changes if change.before is not None]
    if locked is None:
        locked = AgentMemory.lock_rows(agent, {change.memory_id for change in changes})
    db.session.flush()
    key, mass, events = agent.data_key(), agent.core_tokens, []
    for edit in edits:
        about, (data, sealed) = dict(edit.about), recorded(edit.changes, key)
        mass += sum(change.mass_difference for change in edit.changes)
        data = {**(about.pop("data", None) or {}), **data, "mass_after": mass}
        sealed = {**about.pop("sealed", {}), **sealed}
        keys = {change.memory_id: change.content_key for change in edit.changes}
        events.append(Event(edit.action, data=data, sealed=sealed, content_keys=keys, **about))
    records = AuditLog.record_all([(agent.chain, events)], at=at)
    for change in changes:
        locked[change.memory_id].apply(change, at or records[0].created_at)
    write(*(locked[change.memory_id] for change in changes))
    db.session.expire(agent, FIGURES)
    return records


def added(memory: AgentMemory) -> Change:
    """Write a new memory, and return the change for its record; the agent's figures follow then."""
    change = Change(memory.id, None, memory.image())
    write(memory)
    return change


def is_of_kind(kind: str, at: Instant) -> ColumnElement[bool]:
    shown = AgentMemory.is_shown_journal(at)
    kinds: dict[str, ColumnElement[bool]] = {
        "core": and_(AgentMemory.is_kept_core),
        "constitutional": AgentMemory.is_kept_core & AgentMemory.constitutional,
        "journal": shown,
        "expired": AgentMemory.is_kept_journal() & ~shown,
        "discarded": and_(AgentMemory.discarded),
    }
    return kinds[kind]


@event.listens_for(AgentMemory, "after_insert")
@event.listens_for(AgentMemory, "after_update")
def _forget_figures(_mapper: Mapper[Any], _connection: Connection, memory: AgentMemory) -> None:
    """A trigger has counted what was written: the agent's figures are read again when needed."""
    if inspect(memory.agent).persistent:
        db.session.expire(memory.agent, FIGURES)


def content_of(row: Any, key: DataKey) -> str:
    """Return the text of a memory, an entity or a plain row, by its agent's key; Erased."""
    return _key_of(row, key).open(row.sealed_content, Place("agent_memories.content", row.id))


def _key_of(row: Any, key: DataKey) -> ContentKey:
    if row.content_key is None:
        raise Erased(f"memory #{row.id} was erased for good")
    return key.unwrap(row.content_key, content_key_place(row.id))


def state_digest_of(row: Any, key: DataKey) -> str:
    """Return the digest of the state of a memory, an entity or a plain row (see ``image``)."""
    image = {
        CONTENT_KEY: row.content_key,
        "content": content_of(row, key) if row.content_key is not None else None,
        "memory_type": row.memory_type,
        "constitutional": row.constitutional,
        "tags": list(row.tags),
        "created_at": clock.iso(row.created_at),
        "discarded_at": clock.iso(row.discarded_at),
    }
    return state_digest(image, key)


def image_of(row: Mapping[str, Any]) -> Image:
    """Return the image of a row by attribute, its texts in clear; unset columns are None."""
    return {field: _to_json(row.get(field)) for field in image_fields()}


def _to_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return clock.iso(value)
    if isinstance(value, list):
        return list(value)
    return str(value) if isinstance(value, uuid.UUID) else value


def _from_json(value: Any, column: Column[Any]) -> Any:
    is_instant = value is not None and isinstance(column.type, UtcDateTime)
    return datetime.fromisoformat(value) if is_instant else value
