"""Audit records: each has its place in a chain and a keyed hash over itself and the previous
hash. ``data`` holds ids and figures, ``sealed`` contents: enough for exact reversals. The heads of
chains are locked by whoever appends.
"""

import json
import uuid
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple, Protocol

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ColumnElement,
    Computed,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Select,
    Sequence,
    SQLColumnExpression,
    Text,
    UniqueConstraint,
    and_,
    bindparam,
    cast,
    event,
    func,
    literal,
    literal_column,
    or_,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects.postgresql import JSON, JSONB, insert
from sqlalchemy.orm import (
    Mapped,
    MappedColumn,
    Session,
    column_property,
    mapped_column,
    relationship,
)
from sqlalchemy.types import TypeEngine, UserDefinedType

from refine import clock
from refine.errors import RowAltered
from refine.extensions import Base, canonical_json, db
from refine.models.attested import (
    Attested,
    ChainOwner,
    as_read,
    changed_rows,
    digest_of,
    row_text,
    signed_columns,
    unrecorded_updates,
    write,
)
from refine.models.audit.kinds import ACTIONS
from refine.models.columns import BigId, DigestChange, index
from refine.models.keys import WrappedKey, content_key_place, next_ids, place_of
from refine.models.outbox import Delivery, Endpoint
from refine.rules.events import EVENTS, event_of
from refine.sealing import DataKey, Place

GENESIS = "0" * 64
_IDS = Sequence("chain_heads_id_seq")
RECORD_IDS = Sequence("audit_logs_id_seq")


class Actor(Protocol):
    @property
    def id(self) -> int: ...


# The network address and the browser from which somebody acts.
Client = Mapping[str, str]


class Chain(NamedTuple):
    """A chain, and the key that seals its contents. An agent's chain without a key (erased, or
    altered outside the application) holds figures alone.
    """

    account_id: int | None = None
    agent_id: int | None = None
    key: DataKey | None = None

    @property
    def chain_owner(self) -> ChainOwner:
        return ChainOwner(None if self.agent_id is not None else self.account_id, self.agent_id)


PLATFORM = Chain()
PLATFORM_OWNER = ChainOwner()


class TransactionId(UserDefinedType[str]):
    """PostgreSQL's ``xid8``: the transaction that wrote a row."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "xid8"


class ChainHead(Attested, Base):
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
    # the chain's length at its last verification, and the time of that
    verified_sequence: Mapped[int] = mapped_column(BigInteger, default=0, server_default=text("0"))
    verified_at: Mapped[datetime | None]

    unsigned: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("verified_sequence", "verified_at"), "written for many chains at once"
    )

    @property
    def name(self) -> str:
        """Whose chain it is: ``agent 7``, ``account 3`` or ``platform``."""
        return _name(self.account_id, self.agent_id)

    @classmethod
    def begin(cls, owner: ChainOwner) -> None:
        """Add the head of a new owner's chain; RowAltered if the platform's alone is missing."""
        connection = db.session.connection()  # a flush may be under way
        if owner != PLATFORM_OWNER:
            cls._require_platform()
        id_ = connection.scalar(select(_IDS.next_value()))
        values = {"id": id_, **owner._asdict(), "sequence": 0, "hash": GENESIS}
        digest = digest_of(cls, values, WrappedKey.platform_key())
        connection.execute(insert(cls).values(**values, row_digest=digest).on_conflict_do_nothing())

    @classmethod
    def _require_platform(cls) -> None:
        is_platform = and_(cls.account_id.is_(None), cls.agent_id.is_(None))
        has_platform = db.session.connection().scalar(select(func.bool_or(is_platform)))
        if has_platform is None:
            cls.begin(PLATFORM_OWNER)
        elif not has_platform:
            raise RowAltered("the audit chain of platform")

    @classmethod
    def all_locked(
        cls, owners: Collection[ChainOwner], records: int = 0
    ) -> tuple[dict[ChainOwner, "ChainHead"], Iterable[int]]:
        """Lock and return the heads of these owners' chains, with ids for new records."""
        found, ids = cls._lock(owners, records)
        if PLATFORM_OWNER in owners and PLATFORM_OWNER not in found:
            cls._require_platform()
            found, ids = cls._lock(owners, records)
        for owner in owners:
            if owner not in found or not found[owner].is_genuine:
                raise RowAltered(f"the audit chain of {_name(*owner)}")
        return found, ids

    @classmethod
    def _lock(
        cls, owners: Collection[ChainOwner], records: int
    ) -> tuple[dict[ChainOwner, "ChainHead"], Iterable[int]]:
        keys = [(owner.account_id or 0, owner.agent_id or 0) for owner in owners]
        rows = db.session.execute(cls._select_locked(), {"owners": keys, "records": records}).all()
        found = {ChainOwner(head.account_id, head.agent_id): head for head, _ in rows}
        return found, (rows[0][1] if rows else None) or ()

    @classmethod
    @cache
    def _select_locked(cls) -> Select[Any]:
        """Return a statement that is built once: it precedes every record."""
        ids = next_ids(RECORD_IDS, bindparam("records", type_=Integer)).scalar_subquery()
        return (
            select(cls, ids)
            .where(tuple_(*cls._key()).in_(bindparam("owners", expanding=True)))
            .order_by(cls.id)
            .with_for_update()
            .execution_options(populate_existing=True)
        )

    @classmethod
    def is_of_agent(cls, agent_id: int | ColumnElement[int]) -> ColumnElement[bool]:
        """Match an agent's chain by its index."""
        account, agent = cls._key()
        return and_(account == 0, agent == agent_id)

    @classmethod
    def _key(cls) -> tuple[ColumnElement[int], ColumnElement[int]]:
        """Return the owner as in the unique index; the 0 is no parameter."""
        nobody = literal_column("0", BigInteger)
        return func.coalesce(cls.account_id, nobody), func.coalesce(cls.agent_id, nobody)


def _name(account_id: int | None, agent_id: int | None) -> str:
    if agent_id is not None:
        return f"agent {agent_id}"
    return f"account {account_id}" if account_id is not None else "platform"


# -- records ------------------------------------------------------------------------------------

# Where a record's ``data`` holds the client.
CLIENT_KEY = "from"


class Event(NamedTuple):
    """The content of a record, about the row ``subject``. ``data`` has no content, no floats; users
    carry their ``client``.
    """

    action: str
    user: Actor | None = None
    session_id: uuid.UUID | None = None
    subject: Any = None
    data: Mapping[str, Any] | None = None
    sealed: Mapping[str, Any] | None = None
    client: Client | None = None
    # of the memories among ``sealed``, as wrapped by the agent's key
    content_keys: Mapping[int, bytes] = {}

    def attributes(self) -> dict[str, Any]:
        if self.action not in ACTIONS:
            raise LookupError(f"the action {self.action} is of no kind")
        about = self.subject
        client = getattr(self.user, "client", self.client)
        return {
            "action": self.action,
            "user_id": self.user.id if self.user is not None else None,
            "session_id": self.session_id,
            "auditable_type": type(about).__name__ if about is not None else None,
            "auditable_id": str(about.id) if about is not None else None,
            "data": {**(self.data or {}), **({CLIENT_KEY: client} if client else {})},
        }

    def sealed_for(self, chain: Chain, id_: int) -> bytes | None:
        if not self.sealed or (chain.agent_id is not None and chain.key is None):
            return None
        key, sealed = chain.key or WrappedKey.platform_key(), dict(self.sealed)
        if self.content_keys:
            sealed["memories"] = [
                _sealed_memory(memory, key, self.content_keys[memory["id"]], id_)
                for memory in sealed["memories"]
            ]
        return key.seal(canonical_json(sealed), Place("audit_logs.sealed", id_))


def _sealed_memory(
    memory: Mapping[str, Any], key: DataKey, wrapped: bytes, record_id: int
) -> dict[str, Any]:
    """Seal what a record tells of a memory's texts under the memory's own key."""
    id_ = memory["id"]
    content_key = key.unwrap(wrapped, content_key_place(id_))
    sealed = content_key.seal(canonical_json(memory), _memory_place(record_id, id_))
    return {"id": id_, "sealed": b64encode(sealed).decode()}


def _memory_place(record_id: int, memory_id: int) -> Place:
    return Place("audit_logs.sealed", f"{record_id}, memory {memory_id}")


def _figure(type_: type[TypeEngine[Any]], sql: str) -> MappedColumn[Any]:
    return mapped_column(type_, Computed(sql, persisted=True), deferred=True)


def _memory_ids(data: str) -> str:
    return (
        f"(jsonb_path_query_array({data}::jsonb, '$.memories[*].id') || "
        f"jsonb_path_query_array({data}::jsonb, '$.ids[*]'))"
    )


_CONTENT_KEYS = (
    "(SELECT jsonb_object_agg(id, encode(content_key, 'hex')) FROM agent_memories WHERE id = ANY("
    "ARRAY(SELECT jsonb_path_query(audit_logs.data::jsonb, '$.memories[*].id')::bigint)))"
)
_LINK_CONTEXT = "audit_logs.link"
_HAS_MEMORY_IDS = "mass_after IS NOT NULL OR action = 'memory_access_viewed'"
_index = partial(index, "audit_logs")


class AuditLog(Base):
    """One record. The database refuses to change or remove it."""

    __tablename__ = "audit_logs"
    __table_args__ = (
        UniqueConstraint("chain_id", "sequence"),
        # most records are about a memory: they are found by the ids in their data
        Index(
            "ix_audit_logs_subject",
            "auditable_type",
            "auditable_id",
            postgresql_where=text("auditable_type <> 'AgentMemory'"),
        ),
        _index("session_id", where="session_id IS NOT NULL"),
        _index("created_at", "id"),
        _index("action", "created_at", "id"),
        _index("account_id", "created_at", "id"),
        _index("agent_id", "created_at", "id"),
        _index("account_id", "action", "created_at", "id"),
        _index("user_id", "created_at", "id", where="user_id IS NOT NULL"),
        _index("by", "created_at", "id", where="by IS NOT NULL"),
        _index("account_id", "by", "created_at", "id", where="by IS NOT NULL"),
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
                "'memory_restored')"
            ),
        ),
    )

    unsigned: ClassVar[Mapping[str, str]] = {
        "hash": "the hash itself",
        "transaction_id": "written by the database",
        "transaction_at": "written by the database",
    }

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
    sealed_text: Mapped[bytes | None] = mapped_column(
        "sealed", LargeBinary, deferred=True, deferred_group="sealed"
    )
    # the keys of the memories in ``data``, by id: those of erased ones are gone
    content_keys: Mapped[dict[str, str]] = column_property(
        literal_column(_CONTENT_KEYS, JSONB), deferred=True, group="sealed"
    )
    created_at: Mapped[datetime]
    # the digests of the rows that this record is about, before and after, by row name
    rows: Mapped[dict[str, DigestChange] | None] = mapped_column(JSON(none_as_null=True))
    hash: Mapped[str] = mapped_column(Text)
    transaction_id: Mapped[str] = mapped_column(
        TransactionId(), server_default=text("pg_current_xact_id()"), deferred=True
    )
    transaction_at: Mapped[datetime] = mapped_column(server_default=text("now()"), deferred=True)

    # from ``data``: lists and plots would otherwise read hundreds of kilobytes for each record
    mass_after: Mapped[int | None] = _figure(Integer, "(data ->> 'mass_after')::integer")
    by: Mapped[str | None] = _figure(Text, "data ->> 'by'")
    client_address: Mapped[str | None] = _figure(Text, "data #>> '{from,address}'")

    # by name: the log does not import the models that it is about
    agent: Mapped[Any] = relationship("Agent")
    user: Mapped[Any] = relationship("User")

    @classmethod
    def is_about_memory(cls, memory_id: int | SQLColumnExpression[int]) -> ColumnElement[bool]:
        """Match records that changed this memory, or showed it to somebody."""
        ids: ColumnElement[Any] = literal_column(_memory_ids("audit_logs.data"), JSONB)
        return and_(text(f"({_HAS_MEMORY_IDS})"), ids.contains(func.to_jsonb(memory_id)))

    @classmethod
    def record(
        cls, action: str, *, chain: Chain, at: datetime | None = None, **about: Any
    ) -> "AuditLog":
        """Append a record and flush; locks the head of the chain. ``about``: see ``Event``."""
        return cls.record_all([(chain, [Event(action, **about)])], at=at)[0]

    @classmethod
    def record_all(
        cls, events_of: Collection[tuple[Chain, Collection[Event]]], *, at: datetime | None = None
    ) -> list["AuditLog"]:
        """Append records to chains, in a few statements for all."""
        db.session.flush()
        owners = [chain.chain_owner for chain, _ in events_of]
        heads, new_ids = ChainHead.all_locked(owners, sum(len(events) for _, events in events_of))
        ids, records = iter(new_ids), []
        for chain, events in events_of:
            rows: Any = changed_rows(chain.chain_owner)
            for event_ in events:  # the first tells which rows of the owner were changed
                head = heads[chain.chain_owner]
                records.append(cls._next(head, next(ids), event_, chain, rows, at or clock.now()))
                rows = None
        write(*heads.values(), *records)
        if happened := [record for record in records if record.action in EVENTS]:
            _tell(happened)
        return records

    @classmethod
    def _next(
        cls, head: ChainHead, id_: int, event_: Event, chain: Chain, rows: Any, at: datetime
    ) -> "AuditLog":
        record = cls(
            id=id_,
            chain_id=head.id,
            sequence=head.sequence + 1,
            account_id=chain.account_id,
            agent_id=chain.agent_id,
            created_at=at,
            sealed_text=event_.sealed_for(chain, id_),
            rows=rows or None,
            **event_.attributes(),
        )
        record.hash = record.link(head.hash)
        head.sequence, head.hash = record.sequence, record.hash
        return record

    @property
    def sealed(self) -> dict[str, Any]:
        if self.sealed_text is None:
            return {}
        key = self.agent.data_key() if self.agent is not None else WrappedKey.platform_key()
        return self.sealed_under(key)

    def sealed_under(self, key: DataKey) -> dict[str, Any]:
        opened = key.open(self.sealed_text or b"", place_of(self, "sealed"))
        contents: dict[str, Any] = json.loads(opened)
        if "memories" in contents:
            contents["memories"] = list(self._opened(contents["memories"], key))
        return contents

    def _opened(self, memories: Iterable[Any], key: DataKey) -> Iterator[dict[str, Any]]:
        for memory in memories:
            id_ = memory["id"]
            if (wrapped := (self.content_keys or {}).get(str(id_))) is not None:
                content_key = key.unwrap(bytes.fromhex(wrapped), content_key_place(id_))
                opened = content_key.open(b64decode(memory["sealed"]), _memory_place(self.id, id_))
                yield json.loads(opened)

    def link(self, previous_hash: str) -> str:
        values = {name: getattr(self, name) for name in signed_columns(AuditLog)}
        return link_hash(previous_hash, values, WrappedKey.platform_key())


def _tell(records: Collection[AuditLog]) -> None:
    """Queue the events that these new records are, for each endpoint that wants them."""
    connection, new = db.session.connection(), []
    accounts = {record.account_id for record in records}
    # what concerns the installation concerns everybody
    is_told = or_(literal(None in accounts), Endpoint.account_id.in_(accounts - {None}))
    wanted = select(Endpoint.id, Endpoint.account_id, Endpoint.kinds)
    for endpoint in connection.execute(wanted.where(Endpoint.removed_at.is_(None), is_told)):
        for record in records:
            told = event_of(record)
            is_theirs = record.account_id in (None, endpoint.account_id)
            if told and is_theirs and told.kind in (endpoint.kinds or [told.kind]):
                times = {"created_at": record.created_at, "next_at": record.created_at}
                about = {"endpoint_id": endpoint.id, "account_id": endpoint.account_id, **times}
                new.append({"event_id": told.id, "kind": told.kind, "data": told.data, **about})
    if new:
        connection.execute(insert(Delivery), new)


def link_hash(previous_hash: str, values: Mapping[str, Any], platform: DataKey) -> str:
    """Return the hash over all columns by attribute; JSON may be given as its stored text."""
    return platform.mac(previous_hash + row_text(AuditLog, values), _LINK_CONTEXT)


def plain_records() -> Select[*tuple[Any, ...]]:
    """Return a query of records as plain rows, for ``link_hash``: JSON is read as its text."""
    columns = {**signed_columns(AuditLog), "hash": AuditLog.__table__.c.hash}
    return select(
        *(
            (cast(column, Text) if isinstance(column.type, JSON) else as_read(column)).label(name)
            for name, column in columns.items()
        )
    )


@event.listens_for(Session, "before_commit")
def _record_remaining(session: Session) -> None:
    """Record changed rows without a record in this transaction, if an earlier record names them."""
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
