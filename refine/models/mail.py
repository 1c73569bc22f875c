"""Mail to users: what waits, arrived or was given up. It holds no content, and no secret."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, Text, UniqueConstraint, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Mapped, mapped_column, relationship

from refine.extensions import Base, db
from refine.models.outbox import Attempted
from refine.models.people import User

_INVITED, _REMINDED = "Your invitation to Refine", "Your password for Refine"


class Mail(Attempted, Base):
    """A mail to a user, or (of a forgotten password) to an address that may be nobody's."""

    __tablename__ = "mails"
    __table_args__ = (
        UniqueConstraint("user_id", "event_id", postgresql_nulls_not_distinct=True),
        Index("ix_mails_due", "next_at", postgresql_where=text("next_at IS NOT NULL")),
        Index("ix_mails_account_id", "account_id", "id"),
        Index("ix_mails_created_at", "created_at"),
    )

    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    # what it is about; NULL: the installation
    account_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    kind: Mapped[str] = mapped_column(Text)
    event_id: Mapped[str] = mapped_column(Text)
    subject: Mapped[str] = mapped_column(Text)
    # NULL: it is made, with a link, when it is sent
    text: Mapped[str | None] = mapped_column(Text)
    # of who forgot their password, as it was typed
    address: Mapped[str | None] = mapped_column(Text)
    issued_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))

    user: Mapped[User | None] = relationship(foreign_keys=[user_id])
    issued_by: Mapped[User | None] = relationship(foreign_keys=[issued_by_id])

    @classmethod
    def queue(cls, user_ids: Iterable[int | None], at: datetime, **about: Any) -> None:
        """Queue it for some users; an event of which they were told already is left out."""
        rows = [{"user_id": id_, "created_at": at, "next_at": at, **about} for id_ in user_ids]
        db.session.execute(insert(cls).values(rows).on_conflict_do_nothing())

    @classmethod
    def invite(cls, user: User, at: datetime, *, by: User) -> None:
        about = {"account_id": user.account_id, "issued_by_id": by.id}
        id_ = f"invitation-{at.timestamp()}"
        cls.queue([user.id], at, kind="invitation", subject=_INVITED, event_id=id_, **about)

    @classmethod
    def remind(cls, address: str, at: datetime) -> None:
        """Queue a link for who has this address, if anybody; once an hour."""
        about = {"event_id": f"forgotten-{address}-{at:%Y%m%d%H}", "address": address}
        cls.queue([None], at, kind="forgotten", subject=_REMINDED, **about)

    def recipient(self) -> User | None:
        """Return who gets it, as things are now; None if nobody may."""
        by, is_reminder = self.issued_by, self.kind == "forgotten"
        user = User.by_email(self.address or "") if is_reminder else self.user
        if user is None or not user.active or user.log_if_altered() or user.account.locked_at:
            return None
        if is_reminder:
            may = user.email == self.address and bool(user.password_hash) and user.takes_password
        elif self.kind == "invitation":
            may = by is not None and by.inability_reason(user.account_id) is None
        elif self.account_id is None:
            may = user.site_admin and self.kind in user.wanted_mail
        else:
            may = self.account_id == user.account_id and self.kind in user.wanted_mail
        return user if may and user.id == (self.user_id or user.id) else None


def to_be_told(kind: str, account_id: int | None) -> list[int]:
    """Return the users of the account, or those who look after the installation, that want it."""
    mine = User.account_id == account_id if account_id is not None else User.site_admin
    found = db.session.scalars(select(User).where(mine, User.active).order_by(User.id))
    return [each.id for each in found if kind in each.wanted_mail and not each.log_if_altered()]
