"""Second factors: authenticator apps, passkeys, and recovery codes."""

import secrets
from datetime import datetime
from hmac import compare_digest
from typing import Any, Literal, get_args

import pyotp
import webauthn
from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Text, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column, relationship
from webauthn.helpers import bytes_to_base64url

from refine import clock
from refine.errors import InvalidValue, NotFound, Refused
from refine.extensions import Base, db, later_now
from refine.models.attested import Attested, ChainOwner
from refine.models.columns import BigId, Count, Created, Name, Sealed
from refine.models.keys import SealedText, WrappedKey, keyed_hash
from refine.models.people import passkeys
from refine.models.people.sign_in import SignIn
from refine.models.people.user import User
from refine.rules.content import storable_or_none, visible_name
from refine.sealing import DataKey

# An app counts once it showed a code; until then it is new.
Kind = Literal["new_app", "app", "passkey", "codes"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FACTORS: tuple[Kind, ...] = ("app", "passkey")

RECOVERY_CODES = 10
MAX_NAME_CHARACTERS = 40
_CODE_BYTES = 6


class SecondFactor(Attested, Base):
    """An app, a passkey, or the recovery codes of a user. Lock the user before any verb."""

    __tablename__ = "second_factors"
    __table_args__ = (CheckConstraint(f"kind IN {KINDS}", name="kind"),)

    id: Mapped[BigId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    kind: Mapped[str] = mapped_column(Text)
    name: Mapped[Name]
    sealed_app_key: Mapped[Sealed | None] = mapped_column("app_key")
    credential_id: Mapped[str | None] = mapped_column(Text, unique=True)
    public_key: Mapped[bytes | None]
    # what was used last: the half-minute of an app's code, or the count of a passkey's signatures
    counter: Mapped[Count] = mapped_column(BigInteger)
    # of the recovery codes that are left
    code_hashes: Mapped[list[str] | None] = mapped_column(ARRAY(Text))
    created_at: Mapped[Created]
    ended_at: Mapped[datetime | None]

    app_key = SealedText(storable_or_none)

    user: Mapped[User] = relationship(lazy="joined", innerjoin=True)

    @property
    def chain_owner(self) -> ChainOwner:
        return self.user.chain_owner

    def data_key(self) -> DataKey:
        return WrappedKey.platform_key()

    @classmethod
    def of(cls, user: User, *kinds: Kind) -> list["SecondFactor"]:
        """Return those of a user; altered rows do not count."""
        theirs = select(cls).where(cls.user_id == user.id, cls.kind.in_(kinds))
        found = db.session.scalars(theirs.where(cls.ended_at.is_(None)).order_by(cls.id)).all()
        return [each for each in found if not each.log_if_altered() and each.user_id == user.id]

    @classmethod
    def begin_app(cls, user: User) -> str:
        """Return the key of a new app, which is shown once."""
        key = pyotp.random_base32()
        cls._replace(user, "new_app", name="Authenticator app", app_key=key)
        return key

    @classmethod
    def confirm_app(cls, user: User, code: str, at: datetime | None = None) -> None:
        for each in cls.of(user, "new_app"):
            if each._takes_step(_typed(code), at or clock.now()):
                each.kind = "app"
                each._note_added()
                return
        raise InvalidValue("the code is wrong: is the clock of your phone right?")

    @classmethod
    def add_passkey(cls, user: User, name: str, answer: str, challenge: bytes) -> None:
        name = visible_name(name, field="name", limit=MAX_NAME_CHARACTERS)
        made = passkeys.verified(webauthn.verify_registration_response, answer, challenge)
        id_ = bytes_to_base64url(made.credential_id)
        if db.session.scalar(select(cls.id).where(cls.credential_id == id_)) is not None:
            raise InvalidValue("this passkey is known already")
        added = cls(
            user=user,
            kind="passkey",
            name=name,
            credential_id=id_,
            public_key=made.credential_public_key,
            counter=made.sign_count,
        )
        db.session.add(added)
        added._note_added()

    @classmethod
    def make_codes(cls, user: User) -> list[str]:
        """Return new recovery codes, which are shown once; earlier ones end."""
        codes = [secrets.token_hex(_CODE_BYTES) for _ in range(RECOVERY_CODES)]
        hashes = [_hash_of(user, code) for code in codes]
        cls._replace(user, "codes", name="Recovery codes", code_hashes=hashes)
        user.record("recovery_codes_made", by=user)
        return codes

    @classmethod
    def _replace(cls, user: User, kind: Kind, **fields: Any) -> None:
        for each in cls.of(user, kind):
            each._end()
        db.session.add(cls(user=user, kind=kind, **fields))

    def _note_added(self) -> None:
        self.user.has_second_factor = True
        self.user.record("second_factor_added", by=self.user, data={"kind": self.kind})

    @classmethod
    def remove(cls, user: User, factor_id: int) -> None:
        """End a factor, and with the last the recovery codes; Refused if one is demanded."""
        mine = {each.id: each for each in cls.of(user, *FACTORS)}
        if factor_id not in mine:
            raise NotFound("you have no such second factor")
        is_last = len(mine) == 1
        if is_last and user.account.second_factor_required:
            raise Refused("your account demands a second factor: add another one first")
        for each in [mine[factor_id], *(cls.of(user, "codes") if is_last else ())]:
            each._end()
        user.has_second_factor = not is_last
        user.record("second_factor_removed", by=user, data={"kind": mine[factor_id].kind})

    @classmethod
    def reset(cls, user: User, *, by: User | None = None) -> None:
        """End all of them, and every sign-in; as after a password link, the user waits before they
        ask for access: it may be somebody else. End their grants before, which locks agents.
        """
        for each in cls.of(user, *KINDS):
            each._end()
        user.has_second_factor = False
        user.password_linked_at = later_now()
        SignIn.end_all_of(user)
        data = {"by": "command line"} if by is None else None
        user.record("second_factors_reset", by=by, data=data)

    def _end(self) -> None:
        self.ended_at, self.app_key, self.code_hashes = clock.now(), None, None

    @classmethod
    def use_code(cls, user: User, code: str, at: datetime | None = None) -> None:
        """Use up a code of an app, or a recovery code; InvalidValue."""
        typed, at = _typed(code), at or clock.now()
        for each in cls.of(user, "app", "codes"):
            if each._takes_step(typed, at) or each._takes_recovery_code(typed):
                return
        raise InvalidValue("the code is wrong, or was used before")

    def _takes_step(self, typed: str, at: datetime) -> bool:
        if self.app_key is None:
            return False
        app = pyotp.TOTP(self.app_key)
        now = app.timecode(at)
        for step in (now - 1, now, now + 1):
            is_it = compare_digest(app.generate_otp(step).encode(), typed.encode())
            if is_it and step > self.counter:
                self.counter = step
                return True
        return False

    def _takes_recovery_code(self, typed: str) -> bool:
        hashed, hashes = _hash_of(self.user, typed), self.code_hashes or []
        if hashed not in hashes:
            return False
        self.code_hashes = [each for each in hashes if each != hashed]
        self.user.record("recovery_code_used", by=self.user, data={"left": len(self.code_hashes)})
        return True

    @classmethod
    def use_passkey(cls, answer: str, challenge: bytes, of: User | None = None) -> User:
        """Return whose passkey signed the challenge, locked; InvalidValue, and commit even then."""
        id_ = bytes_to_base64url(passkeys.id_in(answer))
        found = db.session.scalar(select(cls).where(cls.credential_id == id_))
        if found is not None:
            found.user.lock()
            found.lock()
            found.require_genuine(credential_id=id_)
            found.require_own("user")
        if found is None or not found._may_be_used_by(of):
            raise InvalidValue("this passkey is not known here, or no longer")
        signed = passkeys.verified(
            webauthn.verify_authentication_response,
            answer,
            challenge,
            credential_public_key=found.public_key,
            credential_current_sign_count=0,  # compared below
        )
        count = signed.new_sign_count
        if (count or found.counter) and count <= found.counter:  # somebody has a copy of it
            found.user.record("passkey_refused", by=found.user, data={"counter": count})
            raise InvalidValue("this passkey was copied: remove it, and use another second factor")
        found.counter = count
        return found.user

    def _may_be_used_by(self, user: User | None) -> bool:
        # alone it stands for the password, where that is taken
        may = self.user.takes_password if user is None else user.id == self.user_id
        return may and self.ended_at is None and self.user.active


def handle_of(user: User) -> str:
    """Return the name of a user that passkeys keep, which tells nothing of them."""
    return keyed_hash(str(user.id), "users.handle")


def _typed(code: str) -> str:
    return "".join(filter(str.isalnum, code.lower()))


def _hash_of(user: User, code: str) -> str:
    return keyed_hash(f"{user.id} {code}", "second_factors.code_hashes")
