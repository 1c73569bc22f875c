"""Tokens of the HTTP API, and of walls: shown once, stored as a keyed hash."""

import re
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal

from sqlalchemy import CheckConstraint, ForeignKey, Text, select, update
from sqlalchemy.orm import Mapped, joinedload, mapped_column, relationship

from refine import clock
from refine.errors import InvalidValue, NotFound, Refused
from refine.extensions import Base, db, later_now
from refine.models.agent import PROMPTS, Agent, configuring
from refine.models.attested import Attested, ChainOwner
from refine.models.audit import PLATFORM, AuditLog
from refine.models.columns import BigId, Created
from refine.models.keys import keyed_hash, new_secret
from refine.models.outbox import Endpoint
from refine.models.people import Account, User

TokenKind = Literal["agent", "platform", "wall"]

_SHOWN_CHARACTERS = 6
# How every token of the API is spelled: others are refused without a query.
WELL_FORMED = re.compile(r"refine_(agent|platform)_[\w-]{43}", re.ASCII)
# The last use is stored to this precision, so that not every request writes.
_LAST_USE_RESOLUTION = timedelta(minutes=1)


class ApiToken(Attested, Base):
    """An agent token is the agent itself; a platform token manages an account's agents; one of a
    wall shows the state of its account, or of all.
    """

    __tablename__ = "api_tokens"
    __table_args__ = (
        CheckConstraint("kind IN ('agent', 'platform', 'wall')", name="kind"),
        CheckConstraint("(kind = 'agent') = (agent_id IS NOT NULL)", name="owner"),
        CheckConstraint("kind = 'wall' OR account_id IS NOT NULL", name="account"),
    )

    id: Mapped[BigId]
    kind: Mapped[str] = mapped_column(Text)
    account_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"), index=True)
    agent_id: Mapped[int | None] = mapped_column(ForeignKey("agents.id"), index=True)
    token_hash: Mapped[str] = mapped_column(Text, unique=True)
    hint: Mapped[str] = mapped_column(Text)
    created_at: Mapped[Created]
    minted_by_id: Mapped[int | None] = mapped_column(ForeignKey("api_tokens.id"), index=True)
    expires_at: Mapped[datetime | None]
    first_used_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]

    account: Mapped[Account] = relationship()
    agent: Mapped[Agent | None] = relationship()
    minted_by: Mapped["ApiToken | None"] = relationship(remote_side="ApiToken.id")

    unsigned: ClassVar[Mapping[str, str]] = {
        "last_used_at": "noted at each use, without a lock",
    }

    @property
    def chain_owner(self) -> ChainOwner:
        return ChainOwner(agent_id=self.agent_id) if self.agent_id else ChainOwner(self.account_id)

    @classmethod
    def mint(
        cls,
        *,
        account: Account | None,
        agent: Agent | None = None,
        kind: TokenKind = "platform",
        by: "ApiToken | None" = None,
        expires_at: datetime | None = None,
    ) -> tuple["ApiToken", str]:
        """Return a new token and its secret, shown once. ``by``: the minting platform token, or
        None for the command line; Refused if it is invalid or not of the agent's account.
        """
        if agent is not None:
            agent.lock()  # before the head of its chain
            agent.require_genuine()
            if account is None or agent.account_id != account.id:
                raise InvalidValue("the agent belongs to another account")
        if by is not None:
            by._require_may_mint(agent)
        kind = "agent" if agent is not None else kind
        prefix = f"refine_{kind}_"
        secret = f"{prefix}{new_secret()}"
        token = cls(
            kind=kind,
            account=account,
            agent=agent,
            token_hash=keyed_hash(secret, "api_tokens.token_hash"),
            hint=secret[: len(prefix) + _SHOWN_CHARACTERS],
            minted_by=by,
            expires_at=expires_at,
        )
        db.session.add(token)
        db.session.flush()
        token._record("token_minted", by=by)
        return token, secret

    def _require_may_mint(self, agent: Agent | None) -> None:
        self.lock()
        self.require_genuine()
        if agent is None or self.kind != "platform" or self.account_id != agent.account_id:
            raise Refused(
                "only a platform token can create tokens, and only for agents of its own account"
            )
        if not self.is_valid:
            raise Refused("the platform token was revoked or has expired")

    @classmethod
    def of_secret(cls, secret: str) -> "ApiToken":
        """Return the token with this secret; NotFound, or RowAltered."""
        hashed = keyed_hash(secret, "api_tokens.token_hash")
        whole_agent = joinedload(cls.agent).undefer("*")  # its digest covers all
        found = select(cls).where(cls.token_hash == hashed).options(whole_agent)
        token = db.session.scalar(found.execution_options(populate_existing=True))
        if token is None:
            raise NotFound("no such token: it was never created here, or it was mistyped")
        token.require_genuine(token_hash=hashed)
        return token

    @property
    def is_valid(self) -> bool:
        expired = self.expires_at is not None and self.expires_at <= clock.now()
        return not (expired or self.is_revoked)

    @property
    def is_wall(self) -> bool:
        return self.kind == "wall"

    @property
    def is_revoked(self) -> bool:
        """Whether the token, or the one that minted it, was revoked."""
        if self.minted_by_id is None:
            return self.revoked_at is not None
        minter = self.minted_by
        if minter is None or minter.id != self.minted_by_id or not minter.is_genuine:
            return True
        return self.revoked_at is not None or minter.revoked_at is not None

    def note_use(self, at: datetime | None = None) -> bool:
        """Note the use, once a minute at most; tell whether it was written."""
        at = at or clock.now()
        is_unused = self.kind == "agent" and self.first_used_at is None
        is_first = is_unused and self._note_first_use(at)
        if self.last_used_at is not None and self.last_used_at > at - _LAST_USE_RESOLUTION:
            return is_first
        # signed columns stay as they are, and requests at once need not wait for each other
        noted = update(ApiToken).where(ApiToken.id == self.id).values(last_used_at=at)
        db.session.execute(noted.execution_options(synchronize_session=False))
        return True

    def _note_first_use(self, at: datetime) -> bool:
        self.lock()  # of requests at once, one records it
        if self.first_used_at is not None:
            return False
        self.first_used_at = at
        self._record("token_first_used", at=at)
        return True

    def revoke(self, user: User | None = None, *, by: "ApiToken | None" = None) -> None:
        """Revoke the token and those that it minted; an altered row grants nothing, and stays."""
        self.lock()
        # first the agents' chains, in order, then the account's: as when a user's access ends
        minted = select(ApiToken).where(
            ApiToken.minted_by_id == self.id, ApiToken.revoked_at.is_(None)
        )
        for each in db.session.scalars(minted.order_by(ApiToken.agent_id, ApiToken.id)).all():
            each.revoke(user, by=by)
        if self.revoked_at is None:
            if not self.log_if_altered():
                self.revoked_at = clock.now()
            self._record("token_revoked", user, by)

    # -- verbs of a platform token --------------------------------------------------------------

    def add_agent(self, **fields: Any) -> Agent:
        if any(fields.get(prompt) for prompt in PROMPTS):
            fields["identity_changed_at"] = later_now()
        self.require_own("account")
        return Agent.create(self.account, actor=self._audit_actor, **fields)

    def change_agent(self, agent: Agent, **fields: Any) -> list[str]:
        return configuring.configure(agent, token_id=self.id, **fields)

    def mint_for(self, agent: Agent, *, expires_at: datetime | None) -> tuple["ApiToken", str]:
        self.require_own("account")
        token, secret = ApiToken.mint(
            account=self.account, agent=agent, by=self, expires_at=expires_at
        )
        agent.ledger.add_journal_note(
            f"My platform created a token that speaks as me. It begins with {token.hint}."
        )
        return token, secret

    def add_webhook(self, url: str, kinds: Collection[str] | None) -> tuple[Endpoint, str]:
        self.require_own("account")
        return Endpoint.add(self.account, url, kinds, by=self._audit_actor)

    def remove_webhook(self, endpoint: Endpoint) -> None:
        endpoint.remove(by=self._audit_actor)

    @property
    def _audit_actor(self) -> dict[str, Any]:
        return {"by": "platform", "token_id": self.id}

    def _record(
        self,
        action: str,
        user: User | None = None,
        by: "ApiToken | None" = None,
        at: datetime | None = None,
    ) -> None:
        owner = self.agent or (self.account if self.account_id is not None else None)
        chain = owner.chain if owner is not None else PLATFORM
        actor = by._audit_actor if by is not None else {}
        AuditLog.record(
            action,
            chain=chain,
            user=user,
            subject=self,
            data={"kind": self.kind, "hint": self.hint, **actor},
            at=at,
        )
