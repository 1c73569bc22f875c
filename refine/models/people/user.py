"""Users: the people of an account who use the dashboard."""

from typing import Any, Literal

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerifyMismatchError
from sqlalchemy import (
    CheckConstraint,
    ColumnElement,
    ForeignKey,
    Index,
    SQLColumnExpression,
    Text,
    func,
    or_,
    select,
    text,
)
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapped, mapped_column, relationship, validates

from refine.errors import InvalidValue, Refused
from refine.extensions import Base, db
from refine.models.audit import AuditLog
from refine.models.columns import BigId, BoolFalse, BoolTrue, Created, Updated
from refine.models.people.account import Account
from refine.rules.content import one_line

Role = Literal["admin", "viewer"]
ROLES: tuple[Role, ...] = ("admin", "viewer")

MIN_PASSWORD_CHARACTERS = 10
MAX_PASSWORD_CHARACTERS = 1_000

_hasher = PasswordHasher()
# Verified for unknown users, so that the answer takes as long.
DUMMY_PASSWORD_HASH = "$argon2id$v=19$m=65536,t=3,p=4$sNmPkmS7VSk2OkEMiU/soQ$" + (
    "RmARKHejTa1Bdk2xaLGnWlFfqVbN2u96IK6PQqQDA8E"
)


class User(Base):
    """A person: admin or viewer of one account; a site admin sees every account."""

    __tablename__ = "users"
    __table_args__ = (
        CheckConstraint("role IN ('admin', 'viewer')", name="role"),
        Index("uq_users_email", func.lower(text("email")), unique=True),
    )

    id: Mapped[BigId]
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    email: Mapped[str] = mapped_column(Text)
    password_hash: Mapped[str | None] = mapped_column(Text)
    role: Mapped[str] = mapped_column(Text, default="admin", server_default=text("'admin'"))
    site_admin: Mapped[BoolFalse]
    active: Mapped[BoolTrue]
    created_at: Mapped[Created]
    updated_at: Mapped[Updated]

    account: Mapped[Account] = relationship()

    @classmethod
    def by_email(cls, email: str) -> "User | None":
        """Return the user of that address, whatever its case."""
        return db.session.scalar(select(cls).where(func.lower(cls.email) == email.strip().lower()))

    @classmethod
    def register(cls, account: Account, email: str, password: str, **fields: Any) -> "User":
        """Add a user; Refused if the address is taken, InvalidValue for a bad one."""
        user = cls(account=account, email=email, **fields)
        if cls.by_email(user.email) is not None:
            raise Refused(f"{user.email} is already a user")
        user.set_password(password)
        db.session.add(user)
        return user

    @classmethod
    def invite(cls, account: Account, email: str, *, role: str, by: "User") -> "User":
        """Add a user without a password, who cannot sign in before choosing one.

        Recorded as ``user_invited``. Refused if the address is taken.
        """
        user = cls(account=account, email=email, role=role)
        if cls.by_email(user.email) is not None:
            raise Refused(f"{user.email} is already a user")
        db.session.add(user)
        db.session.flush()
        user.record("user_invited", by=by, data={"role": user.role})
        return user

    def record(self, action: str, *, by: "User | None" = None, **about: Any) -> AuditLog:
        """Append a record about this user to the account's chain."""
        return self.account.record(action, user=by, subject=("User", self.id), **about)

    @classmethod
    def with_password(cls, email: str, password: str) -> "User | None":
        """Return the active user of that e-mail and password; as slow for an unknown one."""
        found = cls.by_email(email)
        known = found is not None and found.password_hash is not None
        matches = _matches(
            found.password_hash if found and known else DUMMY_PASSWORD_HASH, password
        )
        return found if found is not None and known and matches and found.active else None

    def set_password(self, password: str) -> None:
        """Keep the argon2id hash of ``password`` (10 to 1,000 characters)."""
        if not MIN_PASSWORD_CHARACTERS <= len(password) <= MAX_PASSWORD_CHARACTERS:
            raise InvalidValue(
                f"the password must have {MIN_PASSWORD_CHARACTERS} to "
                f"{MAX_PASSWORD_CHARACTERS:,} characters"
            )
        self.password_hash = _hasher.hash(password)

    def has_password(self, password: str) -> bool:
        """Tell whether this is the user's password."""
        return _matches(self.password_hash or "", password)

    # -- what they may do, in Python and in SQL ---------------------------------------------------

    @hybrid_property
    def may_act(self) -> bool:
        """Whether the user may act, and not only look."""
        return self.role == "admin"

    def may_see(self, account_id: int | None) -> bool:
        """Tell whether the user may see what belongs to this account."""
        return self.site_admin or self.account_id == account_id

    @classmethod
    def sees(cls, account_id: SQLColumnExpression[int]) -> ColumnElement[bool]:
        """Return ``may_see`` as an SQL condition."""
        return or_(cls.site_admin, cls.account_id == account_id)

    @property
    def other_role(self) -> str:
        """The role that the user can be switched to."""
        return "viewer" if self.may_act else "admin"

    @validates("email")
    def _valid_email(self, _key: str, email: Any) -> str:
        address = one_line(email, field="email", limit=254).lower()
        name, at, domain = address.rpartition("@")
        if not (name and at and domain) or any(character.isspace() for character in address):
            raise InvalidValue("email must be an address such as ada@example.org")
        return address

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
