"""People who use the dashboard."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerifyMismatchError
from sqlalchemy import (
    CheckConstraint,
    ColumnElement,
    ForeignKey,
    Index,
    Text,
    exists,
    func,
    or_,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column, relationship, validates

from refine import settings
from refine.errors import Ambiguous, InvalidValue, NotFound, Refused
from refine.extensions import Base, db
from refine.models.attested import Attested, ChainOwner
from refine.models.audit import AuditLog
from refine.models.audit.record import Client
from refine.models.columns import BigId, BoolFalse, BoolTrue, Created, Updated, id_in
from refine.models.people.account import Account
from refine.rules import notices
from refine.rules.content import email_address

Role = Literal["admin", "viewer"]
ROLES: tuple[Role, ...] = get_args(Role)

# Why somebody was locked out, as the end of a sentence: "because …".
LOCK_REASONS = {
    "lost_device": "a device was lost or stolen",
    "password_known": "somebody else may know the password",
    "suspected_misuse": "misuse is suspected",
    "left": "they left",
    "incident": "a security incident is being looked into",
}

MIN_PASSWORD_CHARACTERS = 10
MAX_PASSWORD_CHARACTERS = 1_000

MAX_VIEWS = 20
MAX_VIEW_NAME_CHARACTERS = 40

# In place of a hash: of who joined through the provider of identities, or lost the password.
NO_PASSWORD = "-"  # noqa: S105

_hasher = PasswordHasher()
# Verified for unknown users, so that the answer takes as long.
DUMMY_PASSWORD_HASH = "$argon2id$v=19$m=65536,t=3,p=4$sNmPkmS7VSk2OkEMiU/soQ$" + (
    "RmARKHejTa1Bdk2xaLGnWlFfqVbN2u96IK6PQqQDA8E"
)


class SavedView(NamedTuple):
    """A filter of a list, by name: the endpoint of the list, and the query of its URL."""

    listing: str
    name: str
    query: str


class User(Attested, Base):
    """A person: admin or viewer of one account; a site admin sees every account."""

    __tablename__ = "users"
    __table_args__ = (
        CheckConstraint(f"role IN {ROLES}", name="role"),
        CheckConstraint(f"lock_reason IN {tuple(LOCK_REASONS)}", name="lock_reason"),
        CheckConstraint("(locked_at IS NULL) = (lock_reason IS NULL)", name="locked"),
        CheckConstraint("locked_at IS NULL OR NOT active", name="locked_out"),
        # also the index by which users are found
        Index("uq_users_email", func.lower(text("email")), "account_id", unique=True),
        # an invited user who has not joined does not reserve the address
        Index(
            "uq_users_email_joined",
            func.lower(text("email")),
            unique=True,
            postgresql_where=text("password_hash IS NOT NULL"),
        ),
    )

    id: Mapped[BigId]
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    email: Mapped[str] = mapped_column(Text)
    password_hash: Mapped[str | None] = mapped_column(Text)
    # the keyed hash of who they are at the provider of identities, if they sign in there
    identity_hash: Mapped[str | None] = mapped_column(Text, unique=True)
    # when their password was last set through a link that somebody else issued, or that provider
    # first vouched for them, or their second factor was reset
    password_linked_at: Mapped[datetime | None]
    role: Mapped[str] = mapped_column(Text, default="admin", server_default=text("'admin'"))
    site_admin: Mapped[BoolFalse]
    active: Mapped[BoolTrue]
    # somebody locked is not active either, until another admin unlocks them
    locked_at: Mapped[datetime | None]
    lock_reason: Mapped[str | None] = mapped_column(Text)
    # an app or a passkey; kept here, where no row can be hidden
    has_second_factor: Mapped[BoolFalse]
    created_at: Mapped[Created]
    updated_at: Mapped[Updated]
    # when they put the first steps away
    steps_dismissed_at: Mapped[datetime | None]
    saved_views: Mapped[list[list[str]]] = mapped_column(
        JSONB, default=list, server_default=text("'[]'")
    )
    # the kinds of mail that they chose; NULL: what is usual for their role
    told_of: Mapped[list[str] | None] = mapped_column(ARRAY(Text))

    account: Mapped[Account] = relationship()

    # their address and browser, for the records of their actions
    client: Client = MappingProxyType({})

    unsigned: ClassVar[Mapping[str, str]] = {
        "updated_at": "set by every update, also of unsigned columns",
        "steps_dismissed_at": "decides what the overview shows, and nothing else",
        "saved_views": "shortens the way to a list that the user may see anyway",
    }

    @property
    def chain_owner(self) -> ChainOwner:
        return ChainOwner(account_id=self.account_id)

    @classmethod
    def by_email(cls, email: str) -> "User | None":
        """Return the user of that address, preferably one with a password."""
        joined_first = cls.password_hash.is_(None), cls.id
        return db.session.scalar(
            select(cls).where(cls._has_email(email)).order_by(*joined_first).limit(1)
        )

    @classmethod
    def named(cls, reference: str) -> "User":
        """Return the user of that id or address; NotFound, or Ambiguous."""
        same = cls._has_email(reference)
        if (user_id := id_in(reference)) is not None:
            same = or_(cls.id == user_id, same)
        found = db.session.scalars(select(cls).where(same).order_by(cls.id)).all()
        if not found:
            raise NotFound(f"no user is called {reference!r}")
        if len(found) > 1:  # an address may be invited to several accounts
            ids = ", ".join(str(user.id) for user in found)
            raise Ambiguous(f"several users are called {reference!r}; use an id: {ids}")
        return found[0]

    @classmethod
    def _has_email(cls, email: str) -> ColumnElement[bool]:
        return func.lower(cls.email) == email.strip().lower()

    def _add(self, *, elsewhere: bool) -> None:
        """Refused if the account has the address, or ``elsewhere`` somebody who joined has it."""
        mine = User.account_id == self.account.id
        is_used = db.session.scalar(select(exists().where(User._has_email(self.email), mine)))
        if is_used or (elsewhere and not self.may_join()):
            raise Refused(f"{self.email} is already a user")
        db.session.add(self)
        db.session.flush()

    @classmethod
    def register(
        cls,
        account: Account,
        email: str,
        password: str | None,
        *,
        by: str,
        role: str = "admin",
        site_admin: bool = False,
        **fields: Any,
    ) -> "User":
        """Add a user who joined; Refused if the address is in use, InvalidValue."""
        user = cls(account=account, email=email, role=role, site_admin=site_admin, **fields)
        user.password_hash = NO_PASSWORD
        if password is not None:
            user.set_password(password)
        user._add(elsewhere=True)
        user.record("user_created", data={"role": role, "site_admin": site_admin, "by": by})
        return user

    @classmethod
    def invite(cls, account: Account, email: str, *, role: str, by: "User") -> "User":
        """Add a user without a password; only a site admin is Refused for addresses elsewhere."""
        user = cls(account=account, email=email, role=role)
        user._add(elsewhere=by.site_admin)
        user.record("user_invited", by=by, data={"role": user.role})
        return user

    def record(self, action: str, *, by: "User | None" = None, **about: Any) -> AuditLog:
        return self.account.record(action, user=by, subject=self, **about)

    @classmethod
    def with_password(cls, email: str, password: str) -> "User | None":
        """Return the active user, locked until the commit; as slow for unknown addresses."""
        found = cls.by_email(email)
        stored = found.password_hash if found is not None and found.takes_password else None
        matches = _matches(stored or DUMMY_PASSWORD_HASH, password)
        if found is None or found.email != email.strip().lower() or not (stored and matches):
            return None
        found.require_genuine()
        found.lock()
        return found if found.active and found.password_hash == stored else None

    def set_password(self, password: str) -> None:
        """Keep the argon2id hash; InvalidValue if the password is too short or long."""
        if not MIN_PASSWORD_CHARACTERS <= len(password) <= MAX_PASSWORD_CHARACTERS:
            raise InvalidValue(
                f"the password must have {MIN_PASSWORD_CHARACTERS} to "
                f"{MAX_PASSWORD_CHARACTERS:,} characters"
            )
        self.password_hash = _hasher.hash(password)

    def lock_for(self, by: "User") -> None:
        """Lock both users in order of id; Refused if ``by`` may no longer act."""
        for each in sorted((self, by), key=lambda user: user.id):
            each.lock()
        if (reason := by.inability_reason(self.account_id)) is not None:
            raise Refused(reason)

    def may_join(self) -> bool:
        others = User._has_email(self.email), User.id != self.id, User.password_hash.is_not(None)
        return not db.session.scalar(select(exists().where(*others)))

    def has_password(self, password: str) -> bool:
        return self.takes_password and _matches(self.password_hash or "", password)

    @property
    def takes_password(self) -> bool:
        return self.may_sign_in_here and self.password_hash != NO_PASSWORD

    @property
    def may_sign_in_here(self) -> bool:
        """Whether a password or passkey lets them in: not if they must go to the provider."""
        return self.identity_hash is None or not settings.current().oidc_only

    # -- filters of lists ------------------------------------------------------------------------

    @property
    def views(self) -> list[SavedView]:
        return [SavedView(*each) for each in self.saved_views]

    def save_view(self, view: SavedView) -> None:
        """Keep it, in place of one of the same name; Refused if there are too many."""
        self.delete_view(view)
        if len(self.saved_views) >= MAX_VIEWS:
            raise Refused(f"at most {MAX_VIEWS} views can be saved; delete one first")
        self.saved_views = [*self.saved_views, list(view)]

    def delete_view(self, view: SavedView) -> None:
        self.lock()
        kept = (each for each in self.views if each[:2] != view[:2])
        self.saved_views = [list(each) for each in kept]

    # -- what they may do ------------------------------------------------------------------------

    @property
    def needs_second_factor(self) -> bool:
        return self.has_second_factor or self.account.second_factor_required

    @property
    def may_act(self) -> bool:
        return self.role == "admin"

    @property
    def offered_mail(self) -> list[str]:
        return notices.offered(self.role, site_admin=self.site_admin)

    @property
    def wanted_mail(self) -> list[str]:
        chosen = notices.usual(self.role) if self.told_of is None else self.told_of
        return [name for name in self.offered_mail if name in chosen]

    def may_see(self, account_id: int | None) -> bool:
        return self.site_admin or self.account_id == account_id

    def inability_reason(self, account_id: int) -> str | None:
        """Return why the user may not act for this account; None if they may."""
        if not self.is_genuine:
            return f"{self.row_name} was changed in the database, not by Refine"
        if not self.active:
            return f"{self.email} is not active"
        if not self.may_act:
            return f"{self.email} is a viewer"
        return None if self.may_see(account_id) else f"{self.email} belongs to another account"

    @property
    def other_role(self) -> str:
        return "viewer" if self.may_act else "admin"

    @validates("email")
    def _valid_email(self, _key: str, email: Any) -> str:
        return email_address(email)

    @validates("role")
    def _valid_role(self, _key: str, role: Any) -> str:
        if role not in ROLES:
            raise InvalidValue(f"role must be one of {', '.join(ROLES)}")
        return str(role)


def _matches(password_hash: str | None, password: str) -> bool:
    try:
        return _hasher.verify(password_hash or "", password)
    except (VerifyMismatchError, InvalidHashError):
        return False
