"""The agent as the owner of a data key, a ledger and an audit chain."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, declared_attr, mapped_column, relationship

from refine import clock
from refine.extensions import db
from refine.models.audit import AuditLog, Chain
from refine.models.columns import BigId, Name
from refine.models.keys import WrappedKey
from refine.models.ledger import Ledger
from refine.models.people import Account
from refine.sealing import DataKey


class LedgerOwner:
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

    def data_key(self) -> DataKey:
        """Return the key under which everything that the agent owns is sealed."""
        return self.wrapped_key.open()

    @property
    def is_erased(self) -> bool:
        """Whether the data key was destroyed, and with it everything that it sealed."""
        return self.wrapped_key.wrapped is None

    @property
    def chain(self) -> Chain:
        """The agent's audit chain."""
        key = None if self.is_erased else self.data_key()
        return Chain(account_id=self.account_id, agent_id=self.id, key=key)

    def record(self, action: str, **about: Any) -> AuditLog:
        """Append a record to the agent's chain; ``about`` goes to ``AuditLog.record``."""
        return AuditLog.record(action, chain=self.chain, **about)

    @property
    def ledger(self) -> Ledger:
        """The agent's memories."""
        return Ledger(self)

    def lock(self) -> None:
        """Lock and reload this agent until the transaction ends: the first lock of every change."""
        db.session.flush()  # a refresh drops what was not written yet
        db.session.refresh(self, with_for_update={"key_share": True, "of": type(self)})

    def memory_context(self, at: datetime | None = None) -> str | None:
        """Return the memories that the agent is shown in normal conversation, as Markdown."""
        return self.ledger.context(at or clock.now())

    @property
    def core_token_usage(self) -> int:
        """The token mass: the estimated tokens of all kept core memories."""
        return self.ledger.mass
