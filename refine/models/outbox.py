"""The outbox: what happened, queued in its own transaction for those who asked to be told."""

import secrets
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    JSON,
    CheckConstraint,
    ColumnElement,
    Computed,
    ForeignKey,
    Index,
    Text,
    UniqueConstraint,
    delete,
    func,
    literal,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column, relationship

from refine import clock, settings
from refine.errors import Refused
from refine.extensions import Base, canonical_json, db
from refine.models.attested import Attested, ChainOwner
from refine.models.columns import BigId, Count, Created, Sealed
from refine.models.keys import SealedText, WrappedKey
from refine.rules.content import storable_or_none
from refine.rules.pacing import delivery_pause
from refine.rules.targets import webhook_url
from refine.sealing import DataKey

# Each event of an account is delivered so many times at most.
MOST_OF_AN_ACCOUNT = 20
# Counted from what happened.
KEPT_FOR = timedelta(days=30)
# After a claim whose process died, it is due again so much later: no attempt takes as long.
CLAIMED_FOR = timedelta(minutes=2)

_SECRET_BYTES = 32
_OUTCOME = (
    "CASE WHEN next_at IS NOT NULL THEN 'waiting' "
    "WHEN delivered_at IS NOT NULL THEN 'delivered' ELSE 'given_up' END"
)


class Endpoint(Attested, Base):
    """Where events of an account go, signed with a secret that is shown once."""

    __tablename__ = "endpoints"
    __table_args__ = (
        CheckConstraint("(secret IS NULL) = (removed_at IS NOT NULL)", name="removed"),
        Index("ix_endpoints_account_id", "account_id", postgresql_where=text("removed_at IS NULL")),
    )

    id: Mapped[BigId]
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    url: Mapped[str] = mapped_column(Text)
    sealed_secret: Mapped[Sealed | None] = mapped_column("secret")
    # the kinds of events that are wanted; NULL for all
    kinds: Mapped[list[str] | None] = mapped_column(ARRAY(Text))
    created_at: Mapped[Created]
    removed_at: Mapped[datetime | None]

    secret = SealedText(storable_or_none)

    # by name: accounts stand above the records, which stand above this
    account: Mapped[Any] = relationship("Account")

    @property
    def chain_owner(self) -> ChainOwner:
        return ChainOwner(account_id=self.account_id)

    def data_key(self) -> DataKey:
        return WrappedKey.platform_key()

    @property
    def wanted(self) -> str:
        return ", ".join(self.kinds or ["all"])

    @classmethod
    def add(
        cls, account: Any, url: str, kinds: Collection[str] | None, *, by: Mapping[str, Any]
    ) -> tuple["Endpoint", str]:
        """Return a new endpoint and its secret; InvalidValue, or Refused if there are too many.
        ``by`` says in the record who adds it.
        """
        url = webhook_url(url, is_private_allowed=settings.current().webhooks_private)
        mine = select(func.count()).where(cls.account_id == account.id, cls.is_active())
        if db.session.scalars(mine).one() >= MOST_OF_AN_ACCOUNT:
            raise Refused(f"an account has at most {MOST_OF_AN_ACCOUNT} webhooks; remove one first")
        secret = f"whsec_{b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()}"
        added = cls(account=account, url=url, kinds=list(kinds or ()) or None, secret=secret)
        db.session.add(added)
        db.session.flush()
        added._record("webhook_added", by)
        return added, secret

    def remove(self, *, by: Mapping[str, Any]) -> None:
        """End it and its deliveries for good; an altered one is trusted no more, and stays."""
        self.lock()
        if self.removed_at is None:
            if not self.log_if_altered():
                self.removed_at, self.secret = clock.now(), None
            waits = Delivery.endpoint_id == self.id, Delivery.next_at.is_not(None)
            ended = update(Delivery).where(*waits)
            db.session.execute(ended.values(next_at=None, last_status="removed"))
            self._record("webhook_removed", by)

    def _record(self, action: str, by: Mapping[str, Any]) -> None:
        data = {"kinds": self.wanted, **by}
        self.account.record(action, subject=self, data=data)

    @classmethod
    def is_active(cls) -> ColumnElement[bool]:
        return cls.removed_at.is_(None)

    @classmethod
    def active_of(cls, account: Any) -> Sequence["Endpoint"]:
        mine = select(cls).where(cls.account_id == account.id, cls.is_active())
        return db.session.scalars(mine.order_by(cls.id)).all()

    @classmethod
    def wants(cls, kind: str) -> ColumnElement[bool]:
        return cls.is_active() & or_(cls.kinds.is_(None), literal(kind) == func.any(cls.kinds))


class Attempted:
    """What is sent until it arrives, or is given up."""

    id: Mapped[BigId]
    created_at: Mapped[datetime]
    attempts: Mapped[Count]
    # NULL: it was delivered, or given up
    next_at: Mapped[datetime | None]
    delivered_at: Mapped[datetime | None]
    # the last answer, or why there was none
    last_status: Mapped[str | None] = mapped_column(Text)
    outcome: Mapped[str] = mapped_column(Text, Computed(_OUTCOME, persisted=True))

    @classmethod
    def claim(cls, at: datetime, *conditions: ColumnElement[bool]) -> Any:
        """Take the first that is due for an attempt; commit before it is made."""
        due: Any = select(cls).where(*conditions, cls.next_at <= at)
        first = due.order_by(cls.next_at, cls.id).limit(1).with_for_update(skip_locked=True)
        claimed = db.session.scalar(first.execution_options(populate_existing=True))
        if claimed is not None:
            claimed.next_at = at + CLAIMED_FOR
        return claimed

    def note(self, at: datetime, status: str, *, is_final: bool = False) -> None:
        """Note how an attempt ended: after a failure it is due again, or given up."""
        db.session.refresh(self, with_for_update=True)
        self.attempts, self.last_status = self.attempts + 1, status
        pause = delivery_pause(self.attempts)
        if status.startswith("2"):
            self.delivered_at, is_final = at, True
        self.next_at = None if is_final or pause is None else at + pause

    @classmethod
    def prune(cls, at: datetime) -> int:
        """Delete what was sent or given up long ago; return how many."""
        old = delete(cls).where(cls.created_at < at - KEPT_FOR, cls.next_at.is_(None))
        return len(db.session.scalars(old.returning(cls.id)).all())


class Delivery(Attempted, Base):
    """An event for an endpoint, and how far it got; it arrives at least once."""

    __tablename__ = "deliveries"
    __table_args__ = (
        UniqueConstraint("endpoint_id", "event_id"),
        Index(
            "ix_deliveries_due",
            *("endpoint_id", "next_at"),
            postgresql_where=text("next_at IS NOT NULL"),
        ),
        Index("ix_deliveries_account_id", "account_id", "id"),
        Index("ix_deliveries_created_at", "created_at"),
    )

    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    endpoint_id: Mapped[int] = mapped_column(ForeignKey("endpoints.id"))
    # the same at each attempt, and for every endpoint
    event_id: Mapped[str] = mapped_column(Text)
    kind: Mapped[str] = mapped_column(Text)
    data: Mapped[dict[str, Any]] = mapped_column(JSON)

    endpoint: Mapped[Endpoint] = relationship()

    @property
    def body(self) -> str:
        """What is sent, the same at each attempt."""
        data = {"account": self.endpoint.account.slug, **self.data}
        said = {"type": self.kind, "timestamp": clock.iso(self.created_at), "data": data}
        return canonical_json(said)

    @classmethod
    def endpoints_due(cls, at: datetime) -> Sequence[int]:
        """Return the ids of the endpoints with due deliveries, those that waited longest first."""
        due = select(cls.endpoint_id).where(cls.next_at <= at).group_by(cls.endpoint_id)
        return db.session.scalars(due.order_by(func.min(cls.next_at))).all()

    def note(self, at: datetime, status: str, *, is_final: bool = False) -> None:
        is_removed = self.endpoint.removed_at is not None
        super().note(at, status, is_final=is_final or is_removed)

    def replay(self) -> None:
        """Have it sent once more, with the same id; Refused if its endpoint was removed."""
        db.session.refresh(self, with_for_update=True)
        if self.endpoint.removed_at is not None:
            raise Refused("the webhook was removed, so nothing is sent to it")
        self.attempts, self.next_at = 0, clock.now()
        self.delivered_at = self.last_status = None
