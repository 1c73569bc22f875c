"""Invitations: one-time links with which a person chooses a password."""

from datetime import datetime, timedelta

from sqlalchemy import ForeignKey, Text, select, update
from sqlalchemy.orm import Mapped, mapped_column, relationship

from refine import clock
from refine.extensions import Base, db
from refine.models.columns import BigId, Created
from refine.models.people.user import User
from refine.rules.secrets import hash_of, new_secret

VALID_FOR = timedelta(days=7)


class Invitation(Base):
    """A link for one user; only the hash of its secret is stored."""

    __tablename__ = "invitations"

    id: Mapped[BigId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    secret_hash: Mapped[str] = mapped_column(Text, unique=True)
    created_at: Mapped[Created]
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]

    user: Mapped[User] = relationship(lazy="joined", innerjoin=True)

    @classmethod
    def issue(cls, user: User, at: datetime | None = None) -> str:
        """Return the secret of a new link for the user; their earlier links end."""
        at = at or clock.now()
        db.session.execute(
            update(cls).where(cls.user_id == user.id, cls.used_at.is_(None)).values(used_at=at)
        )
        secret = new_secret()
        db.session.add(
            cls(user=user, secret_hash=hash_of(secret), created_at=at, expires_at=at + VALID_FOR)
        )
        db.session.flush()
        return secret

    @classmethod
    def by_secret(cls, secret: str, at: datetime | None = None) -> "Invitation | None":
        """Return the invitation of that secret, locked, if it is still valid."""
        at = at or clock.now()
        return db.session.scalar(
            select(cls)
            .join(cls.user)
            .where(
                cls.secret_hash == hash_of(secret),
                cls.used_at.is_(None),
                cls.expires_at > at,
                User.active,
            )
            .with_for_update(of=cls)
        )

    def accept(self, password: str, at: datetime | None = None) -> User:
        """Set the user's password and use up the link; InvalidValue for a bad password."""
        self.user.set_password(password)
        self.used_at = at or clock.now()
        return self.user
