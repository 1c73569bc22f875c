"""Signed-in browsers and failed sign-ins, kept in the database so that both can be ended."""

from datetime import datetime, timedelta

from flask_login import UserMixin
from sqlalchemy import ForeignKey, Index, Text, delete, func, select, update
from sqlalchemy.orm import Mapped, mapped_column, relationship

from refine import clock
from refine.errors import TooMany
from refine.extensions import Base, db
from refine.models.columns import BigId, Created
from refine.models.people.user import User
from refine.rules.secrets import hash_of, new_secret

IDLE_FOR = timedelta(hours=12)
LASTS_FOR = timedelta(days=7)
# The last use is stored to this precision, so that not every request writes.
_SEEN_EVERY = timedelta(minutes=1)

FAILURES_COUNT_FOR = timedelta(minutes=15)
MAX_FAILURES_OF_EMAIL = 10
MAX_FAILURES_OF_ADDRESS = 100


class SignIn(UserMixin, Base):  # type: ignore[misc]
    """One signed-in browser: its cookie holds a secret, the row the secret's hash.

    It ends on signing out, on a password change, when the user is deactivated, after twelve hours
    without use, and after seven days.
    """

    __tablename__ = "sign_ins"

    id: Mapped[BigId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    secret_hash: Mapped[str] = mapped_column(Text, unique=True)
    created_at: Mapped[Created]
    last_seen_at: Mapped[Created]
    ended_at: Mapped[datetime | None]

    user: Mapped[User] = relationship(lazy="joined", innerjoin=True)

    @classmethod
    def begin(cls, user: User, at: datetime | None = None) -> "SignIn":
        """Return a new sign-in; only now does ``secret`` hold the secret for the cookie."""
        at = at or clock.now()
        secret = new_secret()
        begun = cls(user=user, secret_hash=hash_of(secret), created_at=at, last_seen_at=at)
        begun.secret = secret
        db.session.add(begun)
        db.session.flush()
        return begun

    @classmethod
    def live(cls, secret: str, at: datetime | None = None) -> "SignIn | None":
        """Return the sign-in of that secret if it is still valid, and note its use."""
        at = at or clock.now()
        found = db.session.scalar(
            select(cls)
            .join(cls.user)
            .where(
                cls.secret_hash == hash_of(secret),
                cls.ended_at.is_(None),
                cls.last_seen_at > at - IDLE_FOR,
                cls.created_at > at - LASTS_FOR,
                User.active,
            )
        )
        if found is not None:
            found.secret = secret
            if found.last_seen_at <= at - _SEEN_EVERY:
                found.last_seen_at = at
                db.session.commit()
        return found

    @classmethod
    def end_all(
        cls, user: User, *, except_for: "SignIn | None" = None, at: datetime | None = None
    ) -> None:
        """End every sign-in of the user, ``except_for`` this one."""
        theirs = update(cls).where(cls.user_id == user.id, cls.ended_at.is_(None))
        if except_for is not None:
            theirs = theirs.where(cls.id != except_for.id)
        db.session.execute(theirs.values(ended_at=at or clock.now()))

    def end(self, at: datetime | None = None) -> None:
        """End this sign-in."""
        self.ended_at = at or clock.now()

    secret: str = ""

    def get_id(self) -> str:
        """Return what Flask-Login keeps in the cookie."""
        return self.secret


class SignInFailure(Base):
    """One failed sign-in, kept to count them; the e-mail address is stored as a hash."""

    __tablename__ = "sign_in_failures"
    __table_args__ = (
        Index("ix_sign_in_failures_email_hash_at", "email_hash", "at"),
        Index("ix_sign_in_failures_address_at", "address", "at"),
    )

    id: Mapped[BigId]
    email_hash: Mapped[str] = mapped_column(Text)
    address: Mapped[str] = mapped_column(Text)
    at: Mapped[datetime]

    @classmethod
    def refuse_too_many(cls, email: str, address: str, at: datetime | None = None) -> None:
        """Raise TooMany after ten failures for an e-mail, or a hundred from an IP address."""
        since = (at or clock.now()) - FAILURES_COUNT_FOR
        for same, most in (
            (cls.email_hash == _email_hash(email), MAX_FAILURES_OF_EMAIL),
            (cls.address == address, MAX_FAILURES_OF_ADDRESS),
        ):
            if (db.session.scalar(select(func.count()).where(same, cls.at > since)) or 0) >= most:
                raise TooMany(
                    "too many sign-ins failed; try again in 15 minutes",
                    retry_after_seconds=int(FAILURES_COUNT_FOR.total_seconds()),
                )

    @classmethod
    def note(cls, email: str, address: str, at: datetime | None = None) -> None:
        """Count a failure, and delete those that no longer count."""
        at = at or clock.now()
        db.session.execute(delete(cls).where(cls.at < at - FAILURES_COUNT_FOR))
        db.session.add(cls(email_hash=_email_hash(email), address=address, at=at))
        db.session.flush()


def _email_hash(email: str) -> str:
    return hash_of(email.strip().lower())
