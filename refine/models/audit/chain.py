"""The chains of the audit log and their heads, locked by whoever appends."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, NamedTuple, Protocol

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ColumnElement,
    ForeignKey,
    Index,
    Integer,
    Select,
    Sequence,
    Text,
    and_,
    bindparam,
    func,
    literal_column,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.types import UserDefinedType

from refine.errors import RowAltered
from refine.extensions import Base, db
from refine.models.attested import Attested, ChainOwner, digest_of
from refine.models.columns import BigId
from refine.models.keys import WrappedKey, next_ids
from refine.sealing import DataKey

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
