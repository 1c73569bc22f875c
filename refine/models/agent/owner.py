"""The agent as the owner of a data key, a ledger and an audit chain."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Self

from sqlalchemy import ForeignKey, Select
from sqlalchemy.orm import (
    Mapped,
    declared_attr,
    mapped_column,
    relationship,
    selectinload,
    undefer_group,
)

from refine import clock
from refine.extensions import db
from refine.models.agent.figures import Figures
from refine.models.attested import Attested
from refine.models.audit import AuditLog, Chain
from refine.models.audit.chain import Actor
from refine.models.columns import BigId, Name
from refine.models.keys import WrappedKey, key_owner_name
from refine.models.ledger import Ledger
from refine.models.people import Account, recording
from refine.models.unrecorded import ChainOwner
from refine.sealing import DataKey

ERASED = "the agent was erased"

# The agent whose key alone is opened at the moment; None: any agent's is.
_holder: ContextVar[int | None] = ContextVar("holder", default=None)


@contextmanager
def only_key_of(agent_id: int | None) -> Iterator[None]:
    """Open no other agent's key until the block ends, whatever rows SQL finds meanwhile.

    For who acts as one agent, or may read what it keeps. None: every agent's key is opened.
    """
    before = _holder.set(agent_id)
    try:
        yield
    finally:
        _holder.reset(before)


class LedgerOwner(Figures, Attested):
    """What an agent owns: key, ledger, chain."""

    id: Mapped[BigId]
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    data_key_id: Mapped[int] = mapped_column(ForeignKey("data_keys.id"), unique=True)
    name: Mapped[Name]

    @declared_attr
    def account(self) -> Mapped[Account]:
        """The account to which the agent belongs."""
        return relationship()

    @declared_attr
    def wrapped_key(self) -> Mapped[WrappedKey]:
        """The stored data key."""
        return relationship(lazy="joined", innerjoin=True)

    @declared_attr
    def access_grants(self) -> Mapped[list[Any]]:
        """Requests and grants to read it; by name, because this module may not import them."""
        return relationship("AccessGrant", viewonly=True, order_by="AccessGrant.created_at")

    def data_key(self) -> DataKey:
        """Return the key under which everything that the agent owns is sealed.

        RowAltered if the agent was changed outside the application, or is not the one of
        ``only_key_of``.
        """
        holder = _holder.get()
        self.require_genuine(id=self.id if holder is None else holder)
        return self.wrapped_key.open(key_owner_name(self.id))

    @property
    def is_erased(self) -> bool:
        """Whether the data key was destroyed, and with it everything that it sealed."""
        return self.wrapped_key.wrapped is None

    def erase(self, at: datetime | None = None, *, by: str | None = None) -> None:
        """Destroy the data key, and with it all that it sealed, for good.

        Recorded as ``agent_erased``, with who did it in ``by``; nothing happens the second time.
        """
        self.lock()
        if not self.is_erased:
            at = at or clock.now()
            self.wrapped_key.wrapped, self.wrapped_key.destroyed_at = None, at
            self.end_access(ERASED, None)
            about = {"by": by} if by is not None else None
            self.record("agent_erased", subject=("Agent", self.id), data=about, at=at)

    def end_access(self, why: str, by: Actor | None) -> None:
        """End every request and grant for good; the agent is locked."""
        for grant in self.access_grants:
            grant.end_for_good(why, by)

    @property
    def chain_owner(self) -> ChainOwner:
        """The agent itself."""
        return ChainOwner(agent_id=self.id)

    @property
    def is_unusable(self) -> bool:
        """Whether nothing can be sealed or opened: the agent was erased, or its row altered."""
        return self.is_erased or not self.is_genuine

    @property
    def chain(self) -> Chain:
        """The agent's audit chain."""
        key = None if self.is_unusable else self.data_key()
        return Chain(account_id=self.account_id, agent_id=self.id, key=key)

    def record(self, action: str, **about: Any) -> AuditLog:
        """Append a record to the agent's chain; ``about`` goes to ``recording.record``."""
        return recording.record(action, chain=self.chain, **about)

    @property
    def ledger(self) -> Ledger:
        """The agent's memories."""
        return Ledger(self)

    def lock(self) -> None:
        """Lock and reload this agent until the transaction ends: the first lock of every change."""
        db.session.flush()  # a refresh drops what was not written yet
        db.session.refresh(self, with_for_update={"key_share": True, "of": type(self)})

    @classmethod
    def lock_due(
        cls, due: Select[int], ids: Sequence[int], *, wait: bool = False
    ) -> Sequence[Self]:
        """Lock the agents among ``ids`` that are ``due``, and return those that still are.

        Agents that another transaction has locked are left out or, with ``wait``, waited for.
        """
        mine = due.where(cls.id.in_(ids)).order_by(cls.id)
        lock = mine.with_for_update(key_share=True, skip_locked=not wait, of=cls)
        locked_ids = db.session.scalars(lock).all()
        # a new statement sees what was done to them before they were locked
        still_due = due.with_only_columns(cls, maintain_column_froms=True)
        return (
            db.session.scalars(
                still_due.where(cls.id.in_(locked_ids))
                .order_by(cls.id)
                .options(undefer_group("prompts"), selectinload(cls.account))
                .execution_options(populate_existing=True)
            )
            .unique()
            .all()
        )

    def memory_context(self, at: datetime | None = None) -> str | None:
        """Return the memories that the agent is shown in normal conversation, as Markdown."""
        return self.ledger.context(at or clock.now())

    @property
    def core_token_usage(self) -> int:
        """The token mass: the estimated tokens of all kept core memories."""
        return self.ledger.core_totals()[1]
