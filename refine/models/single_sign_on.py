"""People whom a provider of identities vouches for, known by issuer and subject."""

from collections.abc import Mapping
from dataclasses import dataclass
from hmac import compare_digest

from sqlalchemy import select

from refine import settings
from refine.errors import NotFound, Refused
from refine.extensions import db, later_now
from refine.models.keys import keyed_hash
from refine.models.people import Account, Invitation, SignIn, User
from refine.models.people.user import NO_PASSWORD
from refine.models.runs.access.grant import AccessGrant
from refine.models.user_changes import change_rights

_BY = {"by": "identity provider"}


@dataclass(frozen=True)
class Identity:
    """``email``: only if the provider verified it; ``roles`` by the slug of the account."""

    issuer: str
    subject: str
    email: str | None
    roles: Mapping[str, str]

    @property
    def hashed(self) -> str:
        return keyed_hash(f"{self.issuer}\n{self.subject}", "users.identity_hash")

    def is_of(self, user: User) -> bool:
        return user.identity_hash is not None and compare_digest(user.identity_hash, self.hashed)

    def admit(self) -> User:
        """Return the user, locked, with the role of the claim; Refused, with a role taken that the
        claim no longer gives: the caller commits that, too.
        """
        user = self._known() or self._joined(self._account())
        if user.site_admin:
            raise Refused("a site admin signs in with a password or passkey")
        if not user.active:
            raise Refused(f"{user.email} is not active")
        role = self.roles.get(user.account.slug)
        change_rights(user, {"role": role or "viewer"}, about=_BY)
        if role is None:
            SignIn.end_all_of(user)
            raise Refused(f"your provider gives you no role in {user.account.name}")
        return user

    def _known(self) -> User | None:
        user = db.session.scalar(select(User).where(User.identity_hash == self.hashed))
        if user is not None:
            user.lock()
            user.require_genuine(identity_hash=self.hashed)
            user.require_own("account")
        return user

    def _account(self) -> Account:
        """Return the account that the claim names, which nobody locks meanwhile; Refused."""
        if len(self.roles) != 1:
            raise Refused("your provider must give you a role in one account, to begin with")
        (slug,) = self.roles
        try:
            account = Account.by_slug(slug)
        except NotFound:
            raise Refused("your provider names an account that does not exist") from None
        account.lock()
        account.require_genuine(slug=slug)
        if account.locked_at is not None:
            raise Refused(f"{account.name} is locked")
        return account

    def _joined(self, account: Account) -> User:
        """Return a new user, or the one of the verified address if linking is allowed. Neither may
        request access at once: whoever rules the provider could be acting as them.
        """
        if self.email is None:
            raise Refused("your provider has not verified your e-mail address")
        user = User.by_email(self.email)
        if user is not None and (user.password_hash is not None or user.account is account):
            self._link(user, account)
            return user
        return User.register(
            account,
            self.email,
            None,
            by=_BY["by"],
            role=self.roles[account.slug],
            identity_hash=self.hashed,
            password_linked_at=later_now(),
        )

    def _link(self, user: User, account: Account) -> None:
        user.lock()
        user.require_genuine(email=self.email)
        is_theirs = user.account_id == account.id and user.active and not user.site_admin
        if not (settings.current().oidc_link and is_theirs):
            raise Refused(f"{user.email} is already a user, who signs in in another way")
        AccessGrant.end_all_of(user, by=None)
        user.identity_hash, user.password_linked_at = self.hashed, later_now()
        user.password_hash = user.password_hash or NO_PASSWORD  # invited until now
        Invitation.end_all_of(user)
        SignIn.end_all_of(user)
        user.record("user_linked", data=_BY)
