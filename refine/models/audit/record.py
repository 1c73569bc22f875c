"""Audit records, in hash chains: one chain for each agent, each account, and the platform.

A record carries its place in its chain and a keyed hash over itself and the previous hash, so that
an edited, missing, added or moved record shows (``verification``). It holds everything that an
exact reversal needs: ids and figures under ``data``, contents under ``sealed``.
"""

import hashlib
import json
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    LargeBinary,
    Sequence,
    Text,
    UniqueConstraint,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import JSON, insert
from sqlalchemy.orm import Mapped, mapped_column, relationship
from sqlalchemy.types import UserDefinedType

from refine import clock
from refine.extensions import Base, canonical_json, db
from refine.models.columns import BigId
from refine.models.keys import WrappedKey
from refine.sealing import DataKey

Subject = Literal[
    "AgentMemory",
    "RefinementSession",
    "MemoryTask",
    "Agent",
    "Account",
    "User",
    "AccessGrant",
    "ApiToken",
]

GENESIS = "0" * 64

_ID_SEQUENCE = Sequence("audit_logs_id_seq")
_SEALED_CONTEXT = "audit_logs.sealed"
_LINK_CONTEXT = "audit_logs.link"


class Actor(Protocol):
    """The user who acted."""

    @property
    def id(self) -> int: ...


class Chain(NamedTuple):
    """The chain that a record goes to, and the key that seals its contents.

    An agent's chain without a key belongs to an agent that was erased: its records hold figures
    alone. Other chains are sealed by the platform's key.
    """

    account_id: int | None = None
    agent_id: int | None = None
    key: DataKey | None = None


PLATFORM = Chain()


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
    verified_at: Mapped[datetime | None]

    @property
    def name(self) -> str:
        """Whose chain it is: ``agent 7``, ``account 3`` or ``platform``."""
        if self.agent_id is not None:
            return f"agent {self.agent_id}"
        return f"account {self.account_id}" if self.account_id is not None else "platform"

    @classmethod
    def locked(cls, chain: Chain) -> "ChainHead":
        """Return the head of a chain, locked; it is added with the first record."""
        account_id = chain.account_id if chain.agent_id is None else None
        head = (
            select(cls)
            .where(
                cls.account_id.is_not_distinct_from(account_id),
                cls.agent_id.is_not_distinct_from(chain.agent_id),
            )
            .with_for_update()
            .execution_options(populate_existing=True)
        )
        if (found := db.session.scalar(head)) is not None:
            return found
        db.session.execute(
            insert(cls)
            .values(account_id=account_id, agent_id=chain.agent_id)
            .on_conflict_do_nothing()
        )
        return db.session.execute(head).scalar_one()


class AuditLog(Base):
    """One record. The database refuses to change or remove it."""

    __tablename__ = "audit_logs"
    __table_args__ = (
        UniqueConstraint("chain_id", "sequence"),
        Index("ix_audit_logs_subject", "auditable_type", "auditable_id"),
        Index("ix_audit_logs_account_id_created_at", "account_id", "created_at", "id"),
        Index("ix_audit_logs_agent_id_created_at", "agent_id", "created_at", "id"),
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

    id: Mapped[int] = mapped_column(
        BigInteger,
        _ID_SEQUENCE,
        primary_key=True,
        server_default=text("nextval('audit_logs_id_seq')"),
    )
    chain_id: Mapped[int] = mapped_column(ForeignKey("chain_heads.id"))
    sequence: Mapped[int] = mapped_column(BigInteger)
    account_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    agent_id: Mapped[int | None] = mapped_column(ForeignKey("agents.id"))
    session_id: Mapped[uuid.UUID | None] = mapped_column(
        ForeignKey("refinement_sessions.id"), index=True
    )
    action: Mapped[str] = mapped_column(Text, index=True)
    auditable_type: Mapped[str | None] = mapped_column(Text)
    auditable_id: Mapped[str | None] = mapped_column(Text)
    data: Mapped[dict[str, Any]] = mapped_column(JSON)
    sealed_text: Mapped[bytes | None] = mapped_column("sealed", LargeBinary, deferred=True)
    created_at: Mapped[datetime]
    hash: Mapped[str] = mapped_column(Text)
    transaction_id: Mapped[str] = mapped_column(
        TransactionId(), server_default=text("pg_current_xact_id()"), deferred=True
    )
    transaction_at: Mapped[datetime] = mapped_column(server_default=text("now()"), deferred=True)

    # by name: the log knows none of the models that it is about
    agent: Mapped[Any] = relationship("Agent")
    user: Mapped[Any] = relationship("User")

    @classmethod
    def record(
        cls,
        action: str,
        *,
        chain: Chain,
        user: Actor | None = None,
        session_id: uuid.UUID | None = None,
        subject: tuple[Subject, object] | None = None,
        data: Mapping[str, Any] | None = None,
        sealed: Mapping[str, Any] | None = None,
        at: datetime | None = None,
    ) -> "AuditLog":
        """Append a record to ``chain``, in the caller's transaction.

        Flushes, and locks the head of the chain. ``data`` holds no content and no floats;
        ``sealed`` is encrypted, and left out if the agent was erased.
        """
        db.session.flush()
        platform = WrappedKey.platform().open()
        is_erased = chain.agent_id is not None and chain.key is None
        head = ChainHead.locked(chain)
        written = cls(
            id=db.session.scalar(select(_ID_SEQUENCE.next_value())),
            chain_id=head.id,
            sequence=head.sequence + 1,
            account_id=chain.account_id,
            user_id=user.id if user is not None else None,
            agent_id=chain.agent_id,
            session_id=session_id,
            action=action,
            auditable_type=subject[0] if subject is not None else None,
            auditable_id=str(subject[1]) if subject is not None else None,
            data=dict(data or {}),
            sealed_text=None if is_erased else _seal(chain.key or platform, sealed),
            created_at=at or clock.now(),
        )
        written.hash = written.link(platform, head.hash, canonical_json(written.data))
        head.sequence, head.hash = written.sequence, written.hash
        db.session.add(written)
        db.session.flush()
        return written

    @property
    def sealed(self) -> dict[str, Any]:
        """The encrypted part, decrypted; empty where there is none."""
        if self.sealed_text is None:
            return {}
        key = self.agent.data_key() if self.agent is not None else WrappedKey.platform().open()
        opened: dict[str, Any] = json.loads(key.open(self.sealed_text, _SEALED_CONTEXT))
        return opened

    def link(self, platform: DataKey, previous_hash: str, data: str) -> str:
        """Return the hash that this record must carry after ``previous_hash``.

        ``data`` is the stored text of the column, to the letter.
        """
        parts = [
            previous_hash,
            self.id,
            self.chain_id,
            self.sequence,
            self.account_id,
            self.user_id,
            self.agent_id,
            str(self.session_id) if self.session_id else None,
            self.action,
            self.auditable_type,
            self.auditable_id,
            clock.iso(self.created_at),
            data,
            hashlib.sha256(self.sealed_text).hexdigest() if self.sealed_text is not None else None,
        ]
        return platform.mac(canonical_json(parts), _LINK_CONTEXT)


def _seal(key: DataKey, contents: Mapping[str, Any] | None) -> bytes | None:
    return key.seal(canonical_json(contents), _SEALED_CONTEXT) if contents else None
