"""Memories: what an agent keeps."""

import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ColumnElement,
    Connection,
    ForeignKey,
    Index,
    Sequence,
    Text,
    event,
    func,
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
from refine.errors import InvalidValue, Refused
from refine.extensions import Base, canonical_json, db
from refine.models.audit import AuditLog
from refine.models.columns import Created, No, Sealed, SealedText
from refine.models.image import (
    Change,
    Image,
    image_of,
    iso,
    recorded,
    state_digest,
)
from refine.rules.content import IMMUTABLE_TAGS, identity, known_tags, memory_content, storable
from refine.rules.tokens import token_estimate
from refine.sealing import DataKey

if TYPE_CHECKING:
    from refine.models.agent import Agent
    from refine.models.user import User

MemoryType = Literal["core", "journal"]
MEMORY_TYPES: tuple[MemoryType, ...] = ("core", "journal")

_ID_SEQUENCE = Sequence("agent_memories_id_seq")
_CONTENT_CONTEXT = "agent_memories.content"


def _extra_text(field: str, value: object) -> str | None:
    return None if value is None else storable(value, field=field)


def content_hash(content: str, key: DataKey) -> str:
    """Return the keyed hash by which exact duplicates are found (trimmed, lower-cased)."""
    return key.mac(identity(content), "agent_memories.content_hash")


class AgentMemory(Base):
    """One memory: core (permanent, part of every prompt) or journal (shown for a week).

    Writing ``content`` seals it and sets ``content_hash`` and ``token_estimate``; every flush sets
    the row's digest. Discarding is soft and for ever.
    """

    __tablename__ = "agent_memories"
    __table_args__ = (
        CheckConstraint("memory_type IN ('core', 'journal')", name="memory_type"),
        CheckConstraint("tags <@ ARRAY['audio', 'somatic', 'voice', 'relational']", name="tags"),
        CheckConstraint("token_estimate BETWEEN 1 AND 2500", name="token_estimate"),
        Index(
            "ix_agent_memories_kept",
            "agent_id",
            "memory_type",
            "created_at",
            "id",
            postgresql_where=text("discarded_at IS NULL"),
            postgresql_include=["token_estimate"],
        ),
        Index("ix_agent_memories_content_hash", "agent_id", "content_hash"),
        Index(
            "uq_agent_memories_source",
            "agent_id",
            "source",
            "source_id",
            unique=True,
            postgresql_where=text("source_id IS NOT NULL"),
        ),
    )

    id: Mapped[int] = mapped_column(
        BigInteger,
        _ID_SEQUENCE,
        primary_key=True,
        server_default=text("nextval('agent_memories_id_seq')"),
    )
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    memory_type: Mapped[str] = mapped_column(Text)
    sealed_content: Mapped[Sealed] = mapped_column("content")
    constitutional: Mapped[No]
    # mutable: tags that are changed in place are stored, and so is a digest that covers them
    tags: Mapped[list[str]] = mapped_column(
        MutableList.as_mutable(ARRAY(Text)), default=list, server_default=text("'{}'")
    )
    content_hash: Mapped[str] = mapped_column(Text)
    token_estimate: Mapped[int]
    discarded_at: Mapped[datetime | None]
    created_at: Mapped[Created]
    recorded_at: Mapped[Created]
    updated_at: Mapped[Created]
    source: Mapped[str | None] = mapped_column(Text)
    source_id: Mapped[str | None] = mapped_column(Text)
    sealed_extra: Mapped[Sealed | None] = mapped_column("extra")
    session_id: Mapped[uuid.UUID | None] = mapped_column(
        ForeignKey("refinement_sessions.id"), index=True
    )
    row_digest: Mapped[str] = mapped_column(Text)

    agent: Mapped["Agent"] = relationship()

    extra = SealedText(_extra_text)

    def __init__(
        self,
        *,
        agent: "Agent",
        content: object,
        memory_type: object = "core",
        **fields: Any,
    ) -> None:
        # the agent comes first: its key seals the rest
        self.agent = agent
        at = clock.now()
        dates = {"created_at": at, "recorded_at": at, "updated_at": at}
        defaults: dict[str, Any] = {"constitutional": False, "tags": []}
        super().__init__(
            content=content, memory_type=memory_type, **{**defaults, **dates, **fields}
        )

    def data_key(self) -> DataKey:
        """Return the key of the agent who owns this memory."""
        return self.agent.data_key()

    # -- content ----------------------------------------------------------------------------------

    @property
    def content(self) -> str:
        """The text, decrypted."""
        return self.data_key().open(self.sealed_content, _CONTENT_CONTEXT)

    @content.setter
    def content(self, value: object) -> None:
        content = memory_content(value)
        if self.sealed_content is not None and content == self.content:
            return
        key = self.data_key()
        self.sealed_content = key.seal(content, _CONTENT_CONTEXT)
        self.content_hash = content_hash(content, key)
        self.token_estimate = token_estimate(content)

    # -- predicates -------------------------------------------------------------------------------

    @property
    def discarded(self) -> bool:
        """Whether the memory was discarded: kept in the database, shown nowhere."""
        return self.discarded_at is not None

    @hybrid_property
    def is_locked(self) -> bool:
        """Whether no session may delete, merge or rewrite it: by its flag, or by a tag."""
        return self.constitutional or self.is_immutable

    @is_locked.inplace.expression
    @classmethod
    def _is_locked(cls) -> ColumnElement[bool]:
        return or_(cls.constitutional, cls.tags.overlap(sorted(IMMUTABLE_TAGS)))

    @property
    def is_immutable(self) -> bool:
        """Whether an audio, somatic or voice tag locks it."""
        return not IMMUTABLE_TAGS.isdisjoint(self.tags)

    @property
    def state_digest(self) -> str:
        """The keyed digest of content, type, flag, tags, origin date, and discarded or not."""
        return state_digest(self.image(), self.data_key())

    # -- verbs ------------------------------------------------------------------------------------

    def discard(self, *, user: "User | None" = None, at: datetime | None = None) -> None:
        """Take the memory out of everything that is shown; it can be restored.

        Writes the record ``memory_discarded``. Refused for a constitutional memory; nothing happens
        where it is discarded already.
        """
        self._lock()
        if self.constitutional:
            raise Refused(f"Cannot discard constitutional memory #{self.id}")
        if not self.discarded:
            self._become("memory_discarded", user, at, discarded_at=iso(at or clock.now()))

    def restore(self, *, user: "User | None" = None, at: datetime | None = None) -> None:
        """Bring a discarded memory back, as it was. Writes the record ``memory_restored``.

        Also a constitutional one: everything can be restored, and this harms nothing.
        """
        self._lock()
        if self.discarded:
            self._become("memory_restored", user, at, discarded_at=None)

    def set_constitutional(
        self, constitutional: bool, *, user: "User | None" = None, at: datetime | None = None
    ) -> None:
        """Set or lift the flag. Writes the record ``memory_constitutional_toggle``."""
        self._lock()
        if self.constitutional != constitutional:
            self._become("memory_constitutional_toggle", user, at, constitutional=constitutional)

    def ledger_entry(self) -> dict[str, Any]:
        """Return the memory as the agent sees it in a ledger: data apart from flags, as JSON."""
        return {
            "id": self.id,
            "date": f"{self.created_at:%Y-%m-%d}",
            "tokens": self.token_estimate,
            "constitutional": self.constitutional,
            "tags": list(self.tags),
            "content": self.content,
        }

    def image(self) -> Image:
        """Return the full row, contents in clear."""
        return image_of(self)

    def rewritten(self, content: str) -> Image:
        """Return the image that this memory would have with another (valid) content."""
        key = self.data_key()
        return {
            **self.image(),
            "content": content,
            "content_hash": content_hash(content, key),
            "token_estimate": token_estimate(content),
        }

    def take_on(self, image: Image, at: datetime) -> None:
        """Bring every field that a change can alter into the state of ``image``, as of ``at``."""
        self.content = image["content"]
        self.memory_type = image["memory_type"]
        self.constitutional = image["constitutional"]
        self.tags = list(image["tags"])
        self.created_at = datetime.fromisoformat(image["created_at"])
        discarded_at = image["discarded_at"]
        self.discarded_at = datetime.fromisoformat(discarded_at) if discarded_at else None
        if db.session.is_modified(self, include_collections=False):
            self.updated_at = at

    @validates("tags")
    def _valid_tags(self, _key: str, tags: Any) -> list[str]:
        return known_tags(tags)

    @validates("agent")
    def _stays_the_agents(self, _key: str, agent: "Agent") -> "Agent":
        if self.agent_id is not None and self.agent_id != agent.id:
            raise InvalidValue("a memory cannot move to another agent: it is sealed for its own")
        return agent

    @validates("memory_type")
    def _valid_type(self, _key: str, memory_type: Any) -> str:
        if memory_type not in MEMORY_TYPES:
            raise InvalidValue(f"memory_type must be one of {', '.join(MEMORY_TYPES)}")
        return str(memory_type)

    def row_text(self) -> str:
        """Return what the row's digest covers: every column, the content as ciphertext."""
        return canonical_json(
            [
                self.id,
                self.agent_id,
                self.memory_type,
                self.sealed_content.hex(),
                self.constitutional,
                list(self.tags),
                self.content_hash,
                self.token_estimate,
                iso(self.discarded_at),
                iso(self.created_at),
                iso(self.recorded_at),
                iso(self.updated_at),
                self.source,
                self.source_id,
                self.sealed_extra.hex() if self.sealed_extra is not None else None,
                str(self.session_id) if self.session_id else None,
            ]
        )

    def digest_of_row(self) -> str:
        """Return the keyed digest that ``row_digest`` must hold."""
        return self.data_key().mac(self.row_text(), "agent_memories.row")

    @classmethod
    def locked(cls, agent: "Agent", ids: Iterable[int]) -> "dict[int, AgentMemory]":
        """Return those of the agent's memories by id, as they now stand, locked in order of id."""
        rows = db.session.scalars(
            select(cls)
            .where(cls.agent_id == agent.id, cls.id.in_(sorted(ids)))
            .order_by(cls.id)
            .with_for_update()
            .execution_options(populate_existing=True)
        )
        return {memory.id: memory for memory in rows}

    @staticmethod
    def next_ids(count: int) -> list[int]:
        """Return ids for so many new memories, in order: one round trip for all of them."""
        numbers = select(_ID_SEQUENCE.next_value()).select_from(func.generate_series(1, count))
        return list(db.session.scalars(numbers))

    def _lock(self) -> None:
        db.session.flush()
        if self.id is None:
            raise Refused("the memory is not stored yet; add it to the database's session first")
        self.agent.lock()
        self.locked(self.agent, [self.id])

    def _become(
        self, action: str, user: "User | None", at: datetime | None, **fields: object
    ) -> None:
        before = self.image()
        change = Change(self.id, before, {**before, **fields})
        change_memories(
            action,
            [change],
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
    agent: "Agent",
    data: Mapping[str, Any] | None = None,
    sealed: Mapping[str, Any] | None = None,
    **record: Any,
) -> AuditLog:
    """Lock the memories, record what changes, then change it; return the record.

    The record comes first because it is what allows a constitutional memory to change. A change
    without ``before`` is a memory that was just added, as it stands. ``record`` goes to
    ``AuditLog.record``.
    """
    standing = [change for change in changes if change.before is not None]
    memories = AgentMemory.locked(agent, [change.memory_id for change in standing])
    mass = agent.core_token_usage + sum(change.mass_difference for change in changes)
    image_data, image_sealed = recorded(changes, agent.data_key())
    log = AuditLog.record(
        action,
        agent=agent,
        data={**(data or {}), **image_data, "mass_after": mass},
        sealed={**(sealed or {}), **image_sealed},
        **record,
    )
    for change in standing:
        memories[change.memory_id].take_on(change.after, log.created_at)
    db.session.flush()
    return log


@event.listens_for(AgentMemory, "before_insert")
def _number(_mapper: Mapper[Any], connection: Connection, memory: AgentMemory) -> None:
    """The digest covers the id, so the id must be known before the row is written."""
    if memory.id is None:
        memory.id = connection.scalar(select(_ID_SEQUENCE.next_value()))
    memory.row_digest = memory.digest_of_row()


@event.listens_for(AgentMemory, "before_update")
def _digest(_mapper: Mapper[Any], _connection: Connection, memory: AgentMemory) -> None:
    if db.session.is_modified(memory, include_collections=False):
        if not inspect(memory).attrs.updated_at.history.has_changes():
            memory.updated_at = clock.now()
        memory.row_digest = memory.digest_of_row()
