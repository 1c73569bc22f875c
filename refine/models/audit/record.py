"""Audit records, in hash chains: one chain for each agent, each account, and the platform.

A record carries its place in its chain and a keyed hash over itself and the previous hash, so that
an edited, missing, added or moved record shows (``chain_walk``). It holds everything that an
exact reversal needs: ids and figures under ``data``, contents under ``sealed``.
"""

import hashlib
import json
import uuid
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, cast

from sqlalchemy import (
    BigInteger,
    BindParameter,
    CheckConstraint,
    ColumnElement,
    Computed,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Sequence,
    Table,
    Text,
    UniqueConstraint,
    and_,
    bindparam,
    event,
    func,
    literal,
    literal_column,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import JSON, JSONB, insert
from sqlalchemy.orm import (
    Mapped,
    MappedColumn,
    Session,
    mapped_column,
    relationship,
    scoped_session,
)
from sqlalchemy.types import TypeEngine, UserDefinedType

from refine import clock
from refine.errors import RowAltered
from refine.extensions import Base, canonical_json, db
from refine.models.attested import ChainOwner, changed_rows, unrecorded_updates
from refine.models.columns import BigId, DigestChange, next_ids, place_of
from refine.models.keys import WrappedKey
from refine.sealing import DataKey, Place, is_unbound

Subject = Literal[
    "AgentMemory",
    "RefinementSession",
    "MemoryTask",
    "Agent",
    "Account",
    "User",
    "AccessGrant",
    "ApiToken",
    "SignIn",
    "Sweep",
]

GENESIS = "0" * 64

_Executor = Connection | scoped_session[Any]

RECORD_IDS = Sequence("audit_logs_id_seq")
LINK_CONTEXT = "audit_logs.link"


class Actor(Protocol):
    """The user who acted."""

    @property
    def id(self) -> int: ...


class Chain(NamedTuple):
    """The chain that a record goes to, and the key that seals its contents.

    An agent's chain without a key belongs to an agent that was erased, or altered outside the
    application: its records hold figures alone. Other chains are sealed by the platform's key.
    """

    account_id: int | None = None
    agent_id: int | None = None
    key: DataKey | None = None

    @property
    def chain_owner(self) -> ChainOwner:
        """The owner of the chain."""
        return ChainOwner(None if self.agent_id is not None else self.account_id, self.agent_id)


PLATFORM = Chain()
PLATFORM_OWNER = ChainOwner()


class Event(NamedTuple):
    """What a record tells, apart from its place.

    ``data`` holds no content and no floats; ``sealed`` is encrypted, and left out for an agent's
    chain without a key.
    """

    action: str
    user: Actor | None = None
    session_id: uuid.UUID | None = None
    subject: tuple[Subject, object] | None = None
    data: Mapping[str, Any] | None = None
    sealed: Mapping[str, Any] | None = None

    def columns(self) -> dict[str, Any]:
        """Return the columns of the record that hold it, but for what is sealed."""
        kind, id_ = self.subject if self.subject is not None else (None, None)
        return {
            "action": self.action,
            "user_id": self.user.id if self.user is not None else None,
            "session_id": self.session_id,
            "auditable_type": kind,
            "auditable_id": str(id_) if kind is not None else None,
            "data": canonical_json(self.data or {}),
        }

    def sealed_for(self, chain: Chain, id_: int) -> bytes | None:
        """Return what is sealed of it in the record of this id."""
        if not self.sealed or (chain.agent_id is not None and chain.key is None):
            return None
        key = chain.key or WrappedKey.platform_key()
        return key.seal(canonical_json(self.sealed), Place("audit_logs.sealed", id_))


class TransactionId(UserDefinedType[str]):
    """PostgreSQL's ``xid8``: the transaction that wrote a row."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "xid8"


class ChainHead(Base):
    """The end of one chain: how many records it has, and the hash of the last."""

    __tablename__ = "chain_heads"
    __table_args__ = (
        CheckConstraint("num_nonnulls(account_id, agent_id) <= 1", name="owner"),
        Index(
            "uq_chain_heads_owner",
            text("coalesce(account_id, 0)"),
            text("coalesce(agent_id, 0)"),
            unique=True,
        ),
    )

    id: Mapped[BigId]
    account_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    agent_id: Mapped[int | None] = mapped_column(ForeignKey("agents.id"))
    sequence: Mapped[int] = mapped_column(BigInteger, default=0, server_default=text("0"))
    hash: Mapped[str] = mapped_column(Text, default=GENESIS, server_default=text(f"'{GENESIS}'"))
    verified_sequence: Mapped[int] = mapped_column(BigInteger, default=0, server_default=text("0"))
    verified_memories: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    verified_at: Mapped[datetime | None]
    # covers every column above except id, so that a head reset to an older state is detected
    digest: Mapped[str | None] = mapped_column(Text)

    @property
    def name(self) -> str:
        """Whose chain it is: ``agent 7``, ``account 3`` or ``platform``."""
        if self.agent_id is not None:
            return f"agent {self.agent_id}"
        return f"account {self.account_id}" if self.account_id is not None else "platform"

    @classmethod
    def begin(cls, owner: ChainOwner, executor: _Executor | None = None) -> None:
        """Add the head of a new owner's chain, without records; nothing if there is one.

        The platform's chain begins with the first of all. RowAltered if others exist without it,
        or with one that is not signed: in a database whose upgrade was cut off nothing may begin.
        """
        executor = executor if executor is not None else db.session
        if owner != PLATFORM_OWNER:
            cls._require_platform(executor)
        head = cls(**owner._asdict(), sequence=0, hash=GENESIS)
        head.verified_sequence = head.verified_memories = 0
        digest = head._present_digest()
        adding = insert(cls).values(**owner._asdict(), digest=digest).on_conflict_do_nothing()
        executor.execute(adding)

    @classmethod
    def _require_platform(cls, executor: _Executor) -> None:
        is_platform = and_(cls.account_id.is_(None), cls.agent_id.is_(None))
        heads = select(is_platform, cls.digest.is_not(None)).order_by(is_platform.desc()).limit(1)
        first = executor.execute(heads).one_or_none()
        if first is None:
            cls.begin(PLATFORM_OWNER, executor)
        elif first != (True, True):
            raise RowAltered("the audit chain of platform")

    @classmethod
    def locked(cls, owner: ChainOwner) -> "ChainHead":
        """Return the head of a chain, locked; RowAltered if it was changed or is gone."""
        return cls.all_locked([owner])[owner]

    @classmethod
    def all_locked(cls, owners: Collection[ChainOwner]) -> dict[ChainOwner, "ChainHead"]:
        """Return the heads of these owners' chains, locked, as ``locked`` does."""
        found = cls._lock(owners)
        if PLATFORM_OWNER in owners and PLATFORM_OWNER not in found:
            cls._require_platform(db.session)
            found = cls._lock(owners)
        for owner in owners:
            if owner not in found or not found[owner].is_genuine:
                raise RowAltered(f"the audit chain of {cls(**owner._asdict()).name}")
        return found

    @classmethod
    def _lock(cls, owners: Collection[ChainOwner]) -> dict[ChainOwner, "ChainHead"]:
        heads = (
            select(cls)
            .where(
                tuple_(*cls._key()).in_(
                    [(owner.account_id or 0, owner.agent_id or 0) for owner in owners]
                )
            )
            .order_by(cls.id)
            .with_for_update()
            .execution_options(populate_existing=True)
        )
        return {
            ChainOwner(head.account_id, head.agent_id): head for head in db.session.scalars(heads)
        }

    @classmethod
    def genuine(cls, values: Iterable[Any]) -> "ChainHead":
        """Return the head with these values of its columns; RowAltered if it was changed."""
        head = cls(**dict(zip(cls.__mapper__.columns.keys(), values, strict=True)))
        if not head.is_genuine:
            raise RowAltered(f"the audit chain of {head.name}")
        return head

    @classmethod
    def is_of_agent(cls, agent_id: int | BindParameter[int]) -> ColumnElement[bool]:
        """Return the SQL condition that the chain is this agent's."""
        account, agent = cls._key()
        return and_(account == 0, agent == agent_id)

    @classmethod
    def _key(cls) -> tuple[ColumnElement[int], ColumnElement[int]]:
        """Return whose chain it is, as the unique index has it."""
        return func.coalesce(cls.account_id, 0), func.coalesce(cls.agent_id, 0)

    @property
    def is_genuine(self) -> bool:
        """Whether the end is where the application left it."""
        return self.digest == self._present_digest()

    def advance(self, **fields: Any) -> None:
        """Set fields of the locked head."""
        for name, value in fields.items():
            setattr(self, name, value)
        self.digest = self._present_digest()

    def _present_digest(self) -> str:
        parts = [
            self.account_id,
            self.agent_id,
            self.sequence,
            self.hash,
            self.verified_sequence,
            self.verified_memories,
            clock.iso(self.verified_at),
        ]
        return WrappedKey.platform_key().mac(canonical_json(parts), "chain_heads.digest")


def _figure(type_: type[TypeEngine[Any]], sql: str) -> MappedColumn[Any]:
    """Return a column that the database takes from the record's data."""
    return mapped_column(type_, Computed(sql, persisted=True), deferred=True)


def _memory_ids(data: str) -> str:
    """Return the SQL of the ids of the memories that a record changed, or showed to somebody."""
    return (
        f"(jsonb_path_query_array({data}::jsonb, '$.memories[*].id') || "
        f"jsonb_path_query_array({data}::jsonb, '$.ids[*]'))"
    )


_HAS_MEMORY_IDS = "mass_after IS NOT NULL OR action = 'memory_access_viewed'"


class AuditLog(Base):
    """One record. The database refuses to change or remove it."""

    __tablename__ = "audit_logs"
    __table_args__ = (
        UniqueConstraint("chain_id", "sequence"),
        # what is about a memory, which most records are, is found by the ids in their data
        Index(
            "ix_audit_logs_subject",
            "auditable_type",
            "auditable_id",
            postgresql_where=text("auditable_type <> 'AgentMemory'"),
        ),
        Index(
            "ix_audit_logs_session_id",
            "session_id",
            postgresql_where=text("session_id IS NOT NULL"),
        ),
        Index("ix_audit_logs_created_at", "created_at", "id"),
        Index("ix_audit_logs_action_created_at", "action", "created_at", "id"),
        Index("ix_audit_logs_account_id_created_at", "account_id", "created_at", "id"),
        Index("ix_audit_logs_agent_id_created_at", "agent_id", "created_at", "id"),
        Index(
            "ix_audit_logs_account_id_action_created_at", "account_id", "action", "created_at", "id"
        ),
        Index(
            "ix_audit_logs_user_id_created_at",
            "user_id",
            "created_at",
            "id",
            postgresql_where=text("user_id IS NOT NULL"),
        ),
        Index(
            "ix_audit_logs_by_created_at",
            "by",
            "created_at",
            "id",
            postgresql_where=text("by IS NOT NULL"),
        ),
        Index(
            "ix_audit_logs_account_id_by_created_at",
            "account_id",
            "by",
            "created_at",
            "id",
            postgresql_where=text("by IS NOT NULL"),
        ),
        Index(
            "ix_audit_logs_memory_ids",
            text(_memory_ids("data")),
            postgresql_using="gin",
            postgresql_where=text(_HAS_MEMORY_IDS),
        ),
        # what the constitutional guard looks for: permits of the running transaction
        Index(
            "ix_audit_logs_permits",
            "transaction_id",
            postgresql_where=text(
                "action IN ('memory_constitutional_toggle', 'memory_refinement_rollback', "
                "'memory_restored', 'memories_resealed')"
            ),
        ),
    )

    # asking for them again would take a statement for each record
    __mapper_args__ = {"eager_defaults": False}

    id: Mapped[int] = mapped_column(
        BigInteger,
        RECORD_IDS,
        primary_key=True,
        server_default=text("nextval('audit_logs_id_seq')"),
    )
    chain_id: Mapped[int] = mapped_column(ForeignKey("chain_heads.id"))
    sequence: Mapped[int] = mapped_column(BigInteger)
    account_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    agent_id: Mapped[int | None] = mapped_column(ForeignKey("agents.id"))
    session_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("refinement_sessions.id"))
    action: Mapped[str] = mapped_column(Text)
    auditable_type: Mapped[str | None] = mapped_column(Text)
    auditable_id: Mapped[str | None] = mapped_column(Text)
    data: Mapped[dict[str, Any]] = mapped_column(JSON)
    sealed_text: Mapped[bytes | None] = mapped_column("sealed", LargeBinary, deferred=True)
    created_at: Mapped[datetime]
    # the digests of the rows that this record is about, before and after, by row name
    rows: Mapped[dict[str, DigestChange] | None] = mapped_column(JSON(none_as_null=True))
    hash: Mapped[str] = mapped_column(Text)
    transaction_id: Mapped[str] = mapped_column(
        TransactionId(), server_default=text("pg_current_xact_id()"), deferred=True
    )
    transaction_at: Mapped[datetime] = mapped_column(server_default=text("now()"), deferred=True)

    # from ``data``, of which a list of records, or a plot, would read hundreds of kilobytes each
    mass_after: Mapped[int | None] = _figure(Integer, "(data ->> 'mass_after')::integer")
    by: Mapped[str | None] = _figure(Text, "data ->> 'by'")
    client_address: Mapped[str | None] = _figure(Text, "data #>> '{from,address}'")

    # by name: the log knows none of the models that it is about
    agent: Mapped[Any] = relationship("Agent")
    user: Mapped[Any] = relationship("User")

    @classmethod
    def is_about_memory(cls, memory_id: int) -> ColumnElement[bool]:
        """Return the SQL condition that a record changed this memory, or showed it to somebody."""
        ids: ColumnElement[Any] = literal_column(_memory_ids("audit_logs.data"), JSONB)
        return and_(text(f"({_HAS_MEMORY_IDS})"), ids.contains(literal(memory_id, JSONB)))

    @classmethod
    def record(
        cls, action: str, *, chain: Chain, at: datetime | None = None, **about: Any
    ) -> "AuditLog":
        """Append a record to ``chain``, in the caller's transaction; ``about``: see ``Event``.

        Flushes, and locks the head of the chain.
        """
        return cls.record_all([Event(action, **about)], chain=chain, at=at)[0]

    @classmethod
    def record_all(
        cls, events: Collection["Event"], *, chain: Chain, at: datetime | None = None
    ) -> list["AuditLog"]:
        """Append a record of each event, as ``record`` does, in a few statements for all."""
        return cls.record_in_chains([(chain, events)], at=at)

    @classmethod
    def record_in_chains(
        cls, events_of: Collection[tuple[Chain, Collection["Event"]]], *, at: datetime | None = None
    ) -> list["AuditLog"]:
        """Append records to several chains, in a few statements for all."""
        db.session.flush()
        heads = ChainHead.all_locked([chain.chain_owner for chain, _ in events_of])
        ids = iter(next_ids(RECORD_IDS, sum(len(events) for _, events in events_of)))
        records = []
        for chain, events in events_of:
            numbered = [(next(ids), each) for each in events]
            stored = next_records(heads[chain.chain_owner], numbered, chain, at or clock.now())
            records += [cls(**each.attributes()) for each in stored]
        db.session.add_all(records)
        db.session.flush()
        return records

    @property
    def sealed(self) -> dict[str, Any]:
        """The encrypted part, decrypted; empty where there is none."""
        if self.sealed_text is None:
            return {}
        key = self.agent.data_key() if self.agent is not None else WrappedKey.platform_key()
        return self.sealed_under(key)

    def sealed_under(self, key: DataKey) -> dict[str, Any]:
        """Return ``sealed`` of a record that has it; ``key`` is that of the chain."""
        is_in_place = is_unbound(self.sealed_text) and self.is_linked()
        opened = key.open(self.sealed_text or b"", self._place(), allow_unbound=is_in_place)
        contents: dict[str, Any] = json.loads(opened)
        return contents

    def _place(self) -> Place:
        return place_of(self, "sealed")

    def is_linked(self) -> bool:
        """Whether the record is as it was written, after the record before it."""
        before = select(AuditLog.hash).where(
            AuditLog.chain_id == self.chain_id, AuditLog.sequence == self.sequence - 1
        )
        previous = db.session.scalar(before) or GENESIS
        written = self.link(WrappedKey.platform_key(), previous, canonical_json(self.data))
        return written == self.hash

    def link(self, platform: DataKey, previous_hash: str, data: str) -> str:
        """Return the hash that this record must carry after ``previous_hash``.

        ``data`` is the stored text of the column, to the letter.
        """
        written = StoredRecord(
            id=self.id,
            chain_id=self.chain_id,
            sequence=self.sequence,
            account_id=self.account_id,
            user_id=self.user_id,
            agent_id=self.agent_id,
            session_id=self.session_id,
            action=self.action,
            auditable_type=self.auditable_type,
            auditable_id=self.auditable_id,
            created_at=self.created_at,
            data=data,
            sealed_text=self.sealed_text,
            rows=canonical_json(self.rows) if self.rows is not None else None,
            hash=self.hash,
        )
        return platform.mac(link_text(previous_hash, written), LINK_CONTEXT)


class StoredRecord(NamedTuple):
    """A record as it is stored, ``data`` and ``rows`` to the letter: what its hash covers, and it.

    Objects would take several times as long to read as the hashes.
    """

    id: int
    chain_id: int
    sequence: int
    account_id: int | None
    user_id: int | None
    agent_id: int | None
    session_id: uuid.UUID | None
    action: str
    auditable_type: str | None
    auditable_id: str | None
    created_at: datetime
    data: str
    sealed_text: bytes | None
    # records of earlier versions have none
    rows: str | None
    hash: str

    def attributes(self) -> dict[str, Any]:
        """Return it as attributes of an ``AuditLog``."""
        rows = json.loads(self.rows) if self.rows is not None else None
        return {**self._asdict(), "data": json.loads(self.data), "rows": rows}


def link_text(previous_hash: str, record: StoredRecord) -> str:
    """Return the text whose keyed hash a record carries after ``previous_hash``."""
    *ids, session_id, action, kind, subject_id, created_at, data, sealed, rows, _ = record
    text = canonical_json(
        [
            previous_hash,
            *ids,
            str(session_id) if session_id else None,
            action,
            kind,
            subject_id,
            clock.iso(created_at),
            data,
            hashlib.sha256(sealed).hexdigest() if sealed is not None else None,
        ]
    )
    return text if rows is None else f"{text[:-1]},{rows}]"


def next_records(
    head: ChainHead, events: Iterable[tuple[int, Event]], chain: Chain, at: datetime
) -> list[StoredRecord]:
    """Return the records of events, each with its id, that follow in a chain; advance its head.

    The caller has locked the head. The first record tells which rows of the owner were changed.
    """
    platform = WrappedKey.platform_key()
    sequence, hash_ = head.sequence, head.hash
    rows = changed_rows(chain.chain_owner)
    records = list[StoredRecord]()
    for id_, event_ in events:
        sequence += 1
        record = StoredRecord(
            id=id_,
            chain_id=head.id,
            sequence=sequence,
            account_id=chain.account_id,
            agent_id=chain.agent_id,
            created_at=at,
            sealed_text=event_.sealed_for(chain, id_),
            rows=canonical_json(rows) if rows and not records else None,
            hash="",
            **event_.columns(),
        )
        hash_ = platform.mac(link_text(hash_, record), LINK_CONTEXT)
        records.append(record._replace(hash=hash_))
    head.advance(sequence=sequence, hash=hash_)
    return records


_LOGS, _HEADS = cast(Table, AuditLog.__table__), cast(Table, ChainHead.__table__)
# The columns of ``StoredRecord``.
RECORD_COLUMNS = ["sealed" if name == "sealed_text" else name for name in StoredRecord._fields]
# The parts of a statement that write a record: see ``appended``.
APPENDED = (
    insert(_LOGS)
    .values({name: bindparam(f"record_{name}") for name in RECORD_COLUMNS})
    .cte("appended"),
    update(_HEADS)
    .where(_HEADS.c.id == bindparam("record_chain_id"))
    .values(
        sequence=bindparam("record_sequence"),
        hash=bindparam("record_hash"),
        digest=bindparam("head_digest"),
    )
    .cte("advanced"),
)


def appended(record: StoredRecord, head: ChainHead) -> dict[str, Any]:
    """Return the parameters of ``APPENDED`` for the record to which the head was advanced."""
    named = zip(RECORD_COLUMNS, record, strict=True)
    return {**{f"record_{name}": value for name, value in named}, "head_digest": head.digest}


@event.listens_for(Session, "before_commit")
def _record_remaining(session: Session) -> None:
    """Write a record for changed rows that an earlier record names and none of this transaction."""
    if session.in_nested_transaction():
        return
    session.flush()
    for owner, names in unrecorded_updates(session).items():
        told = (
            select(AuditLog.account_id)
            .join(ChainHead, ChainHead.id == AuditLog.chain_id)
            .where(
                ChainHead.account_id.is_not_distinct_from(owner.account_id),
                ChainHead.agent_id.is_not_distinct_from(owner.agent_id),
                or_(*(AuditLog.rows[name].as_string().is_not(None) for name in names)),
            )
            .limit(1)
        )
        if (earlier := session.execute(told).first()) is not None:
            AuditLog.record("row_updated", chain=Chain(earlier.account_id, owner.agent_id))
