"""Sign-ins, kept in the database so that they can be ended, and counted password guesses."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from flask_login import UserMixin
from sqlalchemy import ColumnElement, ForeignKey, Text, and_, select, text
from sqlalchemy.orm import Mapped, joinedload, mapped_column, relationship

from refine import clock
from refine.errors import RowAltered, TooMany
from refine.extensions import Base, db
from refine.models.attested import Attested, ChainOwner
from refine.models.columns import BigId, Created
from refine.models.keys import keyed_hash, new_secret
from refine.models.people.user import User
from refine.models.shared_count import SharedCount
from refine.rules.browsers import OTHER, browser_named
from refine.rules.quantities import rough_span

IDLE_FOR = timedelta(hours=12)
LASTS_FOR = timedelta(days=7)
CONFIRMED_FOR = timedelta(minutes=15)
# So long a sign-in waits for a second factor, and so long is one fresh that was given.
FACTOR_FOR = timedelta(minutes=5)
# The last use is stored to this precision, so that not every request writes.
_LAST_USE_RESOLUTION = timedelta(minutes=1)

GUESS_WINDOW = timedelta(minutes=15)
MAX_GUESSES = 10
MAX_GUESSES_OF_ADDRESS = 100

# The owner of one IPv6 address has all of its network.
_IPV6_NETWORK_BITS = 64


class SignIn(UserMixin, Attested, Base):  # type: ignore[misc]
    """One signed-in browser: its cookie holds a secret, the row the secret's hash."""

    __tablename__ = "sign_ins"

    id: Mapped[BigId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    secret_hash: Mapped[str] = mapped_column(Text, unique=True)
    # how: "password", "passkey" or "oidc"
    way: Mapped[str] = mapped_column(Text, default="password", server_default=text("'password'"))
    browser: Mapped[str] = mapped_column(Text, default=OTHER, server_default=text("'other'"))
    created_at: Mapped[Created]
    last_seen_at: Mapped[Created]
    # when the password was last typed, or what stands for it was last shown
    confirmed_at: Mapped[Created]
    # when a second factor was last given
    factor_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    # no column: only the row's hash is stored
    secret: str = ""

    user: Mapped[User] = relationship(lazy="joined", innerjoin=True)

    unsigned: ClassVar[Mapping[str, str]] = {
        "last_seen_at": "noted at each use, without a lock",
    }

    @property
    def chain_owner(self) -> ChainOwner | None:
        return self.user.chain_owner if self.ended_at is not None else None

    @classmethod
    def begin(cls, user: User, at: datetime | None = None, **given: Any) -> "SignIn":
        """Return a new sign-in; ``secret``, for the cookie, is available only now. ``given``: the
        way, and when it was confirmed, unless a password is given now, and a second factor given.
        """
        at = at or clock.now()
        secret = new_secret()
        begun = cls(
            user=user,
            secret_hash=keyed_hash(secret, "sign_ins.secret_hash"),
            browser=browser_named(user.client.get("browser", "")),
            created_at=at,
            last_seen_at=at,
            **{"confirmed_at": at, **given},
        )
        begun.secret = secret
        db.session.add(begun)
        db.session.flush()
        return begun

    @classmethod
    def find_valid(
        cls,
        secret: str,
        at: datetime | None = None,
        *,
        is_use: bool = True,
        is_waiting: bool = False,
    ) -> "SignIn | None":
        """Return the valid sign-in of this secret, note its use; altered rows count as missing. One
        that waits for a second factor is found only by who asks for such a one.
        """
        at = at or clock.now()
        secret_hash = keyed_hash(secret, "sign_ins.secret_hash")
        its_account = joinedload(cls.user).joinedload(User.account, innerjoin=True)
        found: SignIn | None = db.session.scalar(
            select(cls).options(its_account).where(cls.secret_hash == secret_hash)
        )
        try:
            if found is None or not found._is_valid(secret_hash, at):
                return None
            if found.is_waiting != is_waiting:
                return None
            found.secret = secret
            if is_use and found.last_seen_at <= at - _LAST_USE_RESOLUTION:
                found.last_seen_at = at
                db.session.commit()
                found.require_own("user")  # loaded anew
        except RowAltered:
            return None
        return found

    def _is_valid(self, secret_hash: str, at: datetime) -> bool:
        self.require_genuine(secret_hash=secret_hash)
        self.require_own("user")
        self.user.require_own("account")
        return self._is_open(at) and self.user.active

    def _is_open(self, at: datetime) -> bool:
        lasts_for = LASTS_FOR
        if self.is_waiting:  # longer for a first factor, which takes its time
            lasts_for = FACTOR_FOR if self.user.has_second_factor else CONFIRMED_FOR
        lasts = self.last_seen_at > at - IDLE_FOR and self.created_at > at - lasts_for
        return lasts and self.ended_at is None

    @property
    def is_waiting(self) -> bool:
        """Whether it opens nothing until a second factor is given."""
        return self.factor_at is None and self.user.needs_second_factor

    @classmethod
    def is_open(cls, at: datetime) -> ColumnElement[bool]:
        """Return the same condition in SQL, but for those that wait for a second factor."""
        lasts = cls.last_seen_at > at - IDLE_FOR, cls.created_at > at - LASTS_FOR
        return and_(*lasts, cls.ended_at.is_(None))

    @classmethod
    def open_of(cls, user: User, at: datetime | None = None) -> list["SignIn"]:
        """Return the user's sign-ins that work, the last used first."""
        theirs = select(cls).where(cls.user_id == user.id, cls.is_open(at or clock.now()))
        found = db.session.scalars(theirs.order_by(cls.last_seen_at.desc(), cls.id.desc()))
        genuine = (each for each in found if each.is_genuine and each.user_id == user.id)
        return [each for each in genuine if not each.is_waiting]

    @classmethod
    def end_all_of(
        cls, user: User, *, at: datetime | None = None, but: "SignIn | None" = None
    ) -> int:
        """End the user's sign-ins, ``but`` one; return how many would still have worked."""
        at = at or clock.now()
        theirs = select(cls).where(cls.user_id == user.id, cls.ended_at.is_(None))
        ending = [each for each in db.session.scalars(theirs.order_by(cls.id)) if each is not but]
        worked = sum(each._is_open(at) for each in ending)
        for each in ending:
            each.end(at)
        return worked

    def is_confirmed(self, at: datetime | None = None) -> bool:
        """Whether the password, and a second factor if the user has one, were given lately."""
        return self.has_fresh_password(at) and self.has_fresh_factor(at)

    def has_fresh_password(self, at: datetime | None = None) -> bool:
        return self.confirmed_at > (at or clock.now()) - CONFIRMED_FOR

    def has_fresh_factor(self, at: datetime | None = None) -> bool:
        if not self.user.has_second_factor:
            return True
        return self.factor_at is not None and self.factor_at > (at or clock.now()) - FACTOR_FOR

    def end(self, at: datetime | None = None) -> None:
        """End this sign-in once; an altered row grants nothing and stays as it is."""
        if self.ended_at is None:
            if not self.log_if_altered():
                self.ended_at = at or clock.now()
            self.user.account.record("sign_in_ended", subject=self, at=at)

    def is_still_valid(self) -> bool:
        """Tell whether it has not ended; locks the user, so that their password stays the same."""
        self.user.lock()
        self.lock()
        return self.ended_at is None and self.user.active

    def renewed(self, at: datetime | None = None, **given: datetime) -> "SignIn":
        """Return a new sign-in in place of this one, for when it gains rights: with the times at
        which password and second factor were given, unless they are ``given`` anew.
        """
        at = at or clock.now()
        self.end(at)
        times = {"confirmed_at": self.confirmed_at, "factor_at": self.factor_at, **given}
        return SignIn.begin(self.user, at, way=self.way, **times)

    def get_id(self) -> str:
        """Identify the sign-in to Flask-Login."""
        return self.secret


@dataclass(frozen=True)
class PasswordGuess:
    """A guess, counted for user and address together, so that nobody locks a user out from
    elsewhere; a ``sign_in_id`` has a counter of its own. So have the codes of a user (``codes_of``)
    from everywhere: only who knows the password can guess those.
    """

    email: str
    address: str
    sign_in_id: int | None = None
    codes_of: int | None = None

    def count(self, at: datetime | None = None) -> None:
        """Count before checking; TooMany if it must not be checked. The caller always commits."""
        at, limits = at or clock.now(), self._limits
        counted = SharedCount.add(limits, lasts=GUESS_WINDOW, at=at)
        refused = [each.ends_at or at for key, each in counted.items() if each.count > limits[key]]
        if refused:
            seconds = (max(refused) - at).total_seconds()
            raise TooMany(
                f"too many wrong passwords; try again in {rough_span(GUESS_WINDOW)}",
                retry_after_seconds=max(1, round(seconds)),
            )

    def uncount(self, at: datetime | None = None) -> None:
        SharedCount.add(self._limits, lasts=GUESS_WINDOW, step=-1, at=at)

    @property
    def _limits(self) -> Mapping[str, int]:
        network = network_of(self.address)
        email = self.email.strip().lower()
        limits = {
            f"user at address {_hashed(f'{network} {email}')}": MAX_GUESSES,
            address_key(self.address): MAX_GUESSES_OF_ADDRESS,
        }
        if self.sign_in_id is not None:
            limits[f"sign-in {self.sign_in_id}"] = MAX_GUESSES
        if self.codes_of is not None:
            limits[f"codes of user {self.codes_of}"] = MAX_GUESSES
        return limits


def address_key(address: str) -> str:
    return f"address {_hashed(network_of(address))}"


def _hashed(text: str) -> str:
    return keyed_hash(text, "shared_counts.key")


def network_of(address: str) -> str:
    """Return the address, or the network of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((int(parsed), _IPV6_NETWORK_BITS), strict=False))
    return str(parsed)
