"""Bearer tokens of the HTTP API: shown once, stored as a hash."""

import secrets
import zlib
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import CheckConstraint, ForeignKey, Text, or_, select, update
from sqlalchemy.orm import Mapped, mapped_column, relationship

from refine import clock
from refine.errors import InvalidValue, NotFound
from refine.extensions import Base, database_now, db
from refine.models.agent import PROMPTS, Agent
from refine.models.audit import AuditLog
from refine.models.columns import BigId, Created
from refine.models.people import Account, User
from refine.rules.secrets import hash_of

TokenKind = Literal["agent", "platform"]

_PREFIX: dict[TokenKind, str] = {"agent": "refine_agent_", "platform": "refine_platform_"}
_RANDOM_CHARACTERS = 36
_SHOWN_CHARACTERS = 6
# The last use is stored to this precision, so that not every request writes.
_NOTED_EVERY = timedelta(minutes=1)


class ApiToken(Base):
    """An agent token is the agent itself; a platform token manages an account's agents."""

    __tablename__ = "api_tokens"
    __table_args__ = (
        CheckConstraint("kind IN ('agent', 'platform')", name="kind"),
        CheckConstraint("(kind = 'agent') = (agent_id IS NOT NULL)", name="owner"),
    )

    id: Mapped[BigId]
    kind: Mapped[str] = mapped_column(Text)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    agent_id: Mapped[int | None] = mapped_column(ForeignKey("agents.id"), index=True)
    token_hash: Mapped[str] = mapped_column(Text, unique=True)
    hint: Mapped[str] = mapped_column(Text)
    created_at: Mapped[Created]
    created_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]

    account: Mapped[Account] = relationship()
    agent: Mapped[Agent | None] = relationship()
    created_by: Mapped[User | None] = relationship()

    @classmethod
    def mint(
        cls,
        *,
        account: Account,
        agent: Agent | None = None,
        user: User | None = None,
        by: "ApiToken | None" = None,
        expires_at: datetime | None = None,
    ) -> tuple["ApiToken", str]:
        """Return a new token's row and its secret, which cannot be retrieved later.

        Recorded as ``token_minted`` in the agent's chain, or the account's. ``by`` is the platform
        token that minted it, if any.
        """
        if agent is not None and agent.account is not account:
            raise InvalidValue("the agent belongs to another account")
        kind: TokenKind = "agent" if agent is not None else "platform"
        secret = _new_secret(kind)
        token = cls(
            kind=kind,
            account=account,
            agent=agent,
            token_hash=hash_of(secret),
            hint=secret[: len(_PREFIX[kind]) + _SHOWN_CHARACTERS],
            created_by=user,
            expires_at=expires_at,
        )
        db.session.add(token)
        db.session.flush()
        token._record("token_minted", user, by)
        return token, secret

    @classmethod
    def of_secret(cls, secret: str) -> "ApiToken":
        """Return the token with this secret, or raise NotFound."""
        token = db.session.scalar(select(cls).where(cls.token_hash == hash_of(secret)))
        if token is None:
            raise NotFound("no such token: it was never minted here, or it was mistyped")
        return token

    @property
    def is_valid(self) -> bool:
        """Whether the token is neither revoked nor expired."""
        expired = self.expires_at is not None and self.expires_at <= clock.now()
        return self.revoked_at is None and not expired

    def note_use(self, at: datetime | None = None) -> bool:
        """Note that the token was used, once a minute at most; tell whether that was written."""
        at = at or clock.now()
        noted = db.session.execute(
            update(ApiToken)
            .where(
                ApiToken.id == self.id,
                or_(ApiToken.last_used_at.is_(None), ApiToken.last_used_at <= at - _NOTED_EVERY),
            )
            .values(last_used_at=at)
            .execution_options(synchronize_session=False)
            .returning(ApiToken.id)
        )
        return noted.scalar_one_or_none() is not None

    def revoke(self, user: User | None = None, *, by: "ApiToken | None" = None) -> None:
        """Revoke the token for good; nothing happens the second time."""
        db.session.flush()  # a refresh drops what was not written yet
        db.session.refresh(self, with_for_update={"key_share": True})
        if self.revoked_at is None:
            self.revoked_at = clock.now()
            self._record("token_revoked", user, by)

    # -- verbs of a platform token --------------------------------------------------------------

    def add_agent(self, *, name: str, model_id: str, **fields: Any) -> Agent:
        """Add an agent to the account, recorded as ``agent_created``.

        A prompt that the platform wrote counts as a change of identity.
        """
        made = Agent(account=self.account, name=name, model_id=model_id, **fields)
        if any(fields.get(prompt) for prompt in PROMPTS):
            made.identity_changed_at = database_now()
        db.session.add(made)
        db.session.flush()
        made.record(
            "agent_created",
            subject=("Agent", made.id),
            data={"model_id": made.model_id, **self._audit_actor},
        )
        return made

    def change_agent(self, agent: Agent, **fields: Any) -> list[str]:
        """Set fields of ``PLATFORM_FIELDS`` and tell the agent; return the changed ones' names."""
        changed = agent.configure_by_platform(self._audit_actor, **fields)
        if changed:
            named = ", ".join(field.replace("_", " ") for field in changed)
            agent.ledger.add_journal_note(f"My platform changed my settings: {named}.")
        return changed

    def mint_for(self, agent: Agent, *, expires_at: datetime | None) -> tuple["ApiToken", str]:
        """Mint a token for one of the account's agents, and tell the agent."""
        token, secret = ApiToken.mint(
            account=self.account, agent=agent, by=self, expires_at=expires_at
        )
        agent.ledger.add_journal_note(
            f"My platform minted a token that speaks as me. It begins with {token.hint}."
        )
        return token, secret

    @property
    def _audit_actor(self) -> dict[str, Any]:
        """How audit records name this token as the actor."""
        return {"by": "platform", "token_id": self.id}

    def _record(self, action: str, user: User | None, by: "ApiToken | None" = None) -> None:
        chain = self.agent.chain if self.agent is not None else self.account.chain
        actor = by._audit_actor if by is not None else {}
        AuditLog.record(
            action,
            chain=chain,
            user=user,
            subject=("ApiToken", self.id),
            data={"kind": self.kind, "hint": self.hint, **actor},
        )


def is_well_formed(secret: str) -> bool:
    """Tell whether a text has a token's prefix and checksum (as leak scanners check it)."""
    for prefix in _PREFIX.values():
        body = secret.removeprefix(prefix)
        if body != secret:
            random, checksum = body[:_RANDOM_CHARACTERS], body[_RANDOM_CHARACTERS:]
            return checksum == _checksum(random)
    return False


def _new_secret(kind: TokenKind) -> str:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    random = "".join(secrets.choice(alphabet) for _ in range(_RANDOM_CHARACTERS))
    return f"{_PREFIX[kind]}{random}{_checksum(random)}"


def _checksum(random: str) -> str:
    return f"{zlib.crc32(random.encode()):08x}"
