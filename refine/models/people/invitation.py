"""Invitations: one-time links for choosing a password."""

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, ForeignKey, Text, select
from sqlalchemy.orm import Mapped, mapped_column, relationship

from refine import clock
from refine.errors import Refused
from refine.extensions import Base, db, later_now
from refine.models.attested import Attested, ChainOwner
from refine.models.columns import BigId, Created
from refine.models.keys import keyed_hash, new_secret
from refine.models.people.user import User

VALID_FOR = timedelta(days=7)


class Invitation(Attested, Base):
    """A link for one user; only a keyed hash of its secret is stored."""

    __tablename__ = "invitations"

    id: Mapped[BigId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    secret_hash: Mapped[str] = mapped_column(Text, unique=True)
    created_at: Mapped[Created]
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]
    issued_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))

    user: Mapped[User] = relationship(lazy="joined", innerjoin=True, foreign_keys=[user_id])
    issued_by: Mapped[User | None] = relationship(foreign_keys=[issued_by_id])

    @property
    def chain_owner(self) -> ChainOwner:
        return self.user.chain_owner

    @classmethod
    def issue(cls, user: User, at: datetime | None = None, *, by: User | None = None) -> str:
        """Return the secret of a new link; earlier ones end. Refused if the user is not active."""
        user.lock()  # otherwise two links issued at the same time would both work
        if not user.active:
            raise Refused(f"{user.email} is not active; an admin can change that in the dashboard")
        at = at or clock.now()
        cls.end_all_of(user, at)
        secret = new_secret()
        link = cls(
            user=user,
            secret_hash=keyed_hash(secret, "invitations.secret_hash"),
            created_at=at,
            expires_at=at + VALID_FOR,
            issued_by=by,
        )
        db.session.add(link)
        db.session.flush()
        return secret

    @classmethod
    def end_all_of(cls, user: User, at: datetime | None = None) -> int:
        return cls._end(cls.user_id == user.id, at)

    @classmethod
    def end_issued_by(cls, user: User) -> int:
        """End the links issued by a user who may no longer act."""
        return cls._end(cls.issued_by_id == user.id)

    @classmethod
    def _end(cls, chosen: ColumnElement[bool], at: datetime | None = None) -> int:
        """End the links that were not used; return how many would still have worked."""
        at = at or clock.now()
        unused = select(cls).where(chosen, cls.used_at.is_(None)).order_by(cls.id)
        links = db.session.scalars(unused).all()
        for link in links:
            if link.log_if_altered():
                link.user.account.record("invitation_ended", subject=link, at=at)
            else:
                link.used_at = at
        return sum(link.expires_at > at for link in links)

    @classmethod
    def by_secret(cls, secret: str, at: datetime | None = None) -> "Invitation | None":
        """Return the invitation of that secret if it is still valid, locked with its user."""
        at = at or clock.now()
        hashed = keyed_hash(secret, "invitations.secret_hash")
        found = db.session.scalar(select(cls).where(cls.secret_hash == hashed))
        if found is None:
            return None
        found.user.lock()  # first, as everywhere
        found.lock()
        found.require_genuine(secret_hash=hashed)
        found.require_own("user")
        is_open = found.used_at is None and found.expires_at > at and found._issuer_may_act
        may_join = found.user.active and found.user.may_sign_in_here
        return found if is_open and may_join and found.user.account.locked_at is None else None

    @property
    def _issuer_may_act(self) -> bool:
        issuer = self.issued_by
        if issuer is None:
            return self.issued_by_id is None
        may_act = issuer.inability_reason(self.user.account_id) is None
        return may_act and issuer.id == self.issued_by_id

    def accept(self, password: str, at: datetime | None = None) -> User:
        """Set the password, use up the link; InvalidValue, or Refused if the address was joined."""
        may_join = self.user.may_join()
        self.user.set_password(password)
        if not may_join:
            raise Refused("the address is in use")
        self.user.password_linked_at = later_now()
        self.end_all_of(self.user, at)
        return self.user
