"""Access grants: request, answer and permission in one row. The database's clock decides, so
a wrong process clock cannot extend access.
"""

import uuid
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal, get_args

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ColumnElement,
    ForeignKey,
    Index,
    Text,
    and_,
    case,
    func,
    or_,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapped, column_property, mapped_column, relationship

from refine import clock
from refine.errors import ClocksDiffer, Refused, RowAltered
from refine.extensions import Base, UtcDateTime, agreed_now, database_now, db, later_now
from refine.models.agent import Agent, eligibility
from refine.models.agent.agent import ERASED
from refine.models.attested import Attested, ChainOwner
from refine.models.audit import AuditLog
from refine.models.audit.record import Actor
from refine.models.columns import Sealed, constant
from refine.models.keys import SealedText
from refine.models.people import Account, User
from refine.models.runs.access.asking_rules import (
    MAX_MINUTES,
    MIN_MINUTES,
    REASONS,
    AccessScope,
    AccessTerms,
    valid_purpose,
    why_not_after_declines,
    why_not_ask,
)
from refine.models.runs.run import Run
from refine.rules import quantities
from refine.rules.content import reply_text

Status = Literal["requested", "granted", "declined", "failed", "lapsed", "ended"]
STATUSES: tuple[Status, ...] = get_args(Status)
# A user has at most one of these per agent.
UNFINISHED = ("requested", "granted")
EndReason = Literal[
    "expired", "ended_by_user", "revoked_by_agent", "revoked_by_admin", "no_longer_allowed"
]
END_REASONS: tuple[EndReason, ...] = get_args(EndReason)

# The error kind of a request whose user may no longer ask.
NO_LONGER_ALLOWED = "no_longer_allowed"

# A request that no worker took for this long lapses.
REQUEST_LAPSES_AFTER = timedelta(hours=24)


class AccessAlreadyRequested(Refused):
    def __init__(self, grant_id: uuid.UUID, status: str) -> None:
        self.grant_id = grant_id
        super().__init__(
            "you already have access to this agent's memories; end that access first"
            if status == "granted"
            else "you have already asked this agent; wait for its answer"
        )


class AccessGrant(Run, Attested, Base):
    __tablename__ = "access_grants"
    __table_args__ = (
        CheckConstraint(f"reason IN {tuple(REASONS)}", name="reason"),
        CheckConstraint(f"status IN {STATUSES}", name="status"),
        CheckConstraint(f"end_reason IN {END_REASONS}", name="end_reason"),
        CheckConstraint(
            f"duration_minutes BETWEEN {MIN_MINUTES} AND {MAX_MINUTES}", name="duration_minutes"
        ),
        CheckConstraint("(granted_at IS NULL) = (expires_at IS NULL)", name="expires"),
        CheckConstraint("status <> 'granted' OR granted_at IS NOT NULL", name="granted"),
        CheckConstraint("lease_token IS NULL OR status = 'requested'", name="lease"),
        Index(
            "uq_access_grants_open",
            "user_id",
            "agent_id",
            unique=True,
            postgresql_where=text(f"status IN {UNFINISHED}"),
        ),
        Index(
            "ix_access_grants_open_since",
            "status",
            "created_at",
            postgresql_where=text(f"status IN {UNFINISHED}"),
        ),
        Index("ix_access_grants_created_at", text("created_at DESC"), "id"),
    )

    # the status changes only with the answer; a lease shows that a worker is asking the agent
    waiting_status = running_status = "requested"
    is_automatic = False

    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    status: Mapped[str] = mapped_column(
        Text, default="requested", server_default=text("'requested'")
    )
    reason: Mapped[str] = mapped_column(Text)
    sealed_purpose: Mapped[Sealed] = mapped_column("purpose", deferred=True)
    duration_minutes: Mapped[int]
    # what was asked for, until the agent grants less; see ``scope``
    session_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("refinement_sessions.id"))
    memory_ids: Mapped[list[int] | None] = mapped_column(ARRAY(BigInteger))
    started_at: Mapped[datetime | None] = mapped_column("asked_at")
    sealed_reply: Mapped[Sealed | None] = mapped_column("reply", deferred=True)
    generation_id: Mapped[str | None] = mapped_column(Text)
    granted_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None] = mapped_column()
    end_reason: Mapped[str | None] = mapped_column(Text)
    ended_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))

    purpose = SealedText(valid_purpose)
    reply = SealedText(reply_text)

    account: Mapped[Account] = relationship()
    user: Mapped[User] = relationship(foreign_keys=[user_id])
    ended_by: Mapped[User | None] = relationship(foreign_keys=[ended_by_id])

    # when the row was loaded, by the database's clock
    read_at: Mapped[datetime] = column_property(func.clock_timestamp(type_=UtcDateTime()))

    unsigned: ClassVar[Mapping[str, str]] = {
        "sealed_purpose": "sealed: nobody can write it without the agent's key",
        "sealed_reply": "sealed: nobody can write it without the agent's key",
    }

    @property
    def chain_owner(self) -> ChainOwner:
        return ChainOwner(agent_id=self.agent_id)

    def __init__(self, *, agent: Agent, **fields: Any) -> None:
        super().__init__(agent=agent, **{"account": agent.account, **fields})

    @property
    def scope(self) -> AccessScope:
        return AccessScope.of(self)

    @scope.setter
    def scope(self, scope: AccessScope) -> None:
        ids = scope.memory_ids
        self.session_id, self.memory_ids = scope.session_id, None if ids is None else sorted(ids)

    # -- requesting ------------------------------------------------------------------------------

    @classmethod
    def refusal_reason(cls, agent: Agent, user: User) -> str | None:
        """Return why this user may not ask this agent; None if they may."""
        try:
            now = agreed_now()
            return why_not_ask(agent, user, now) or why_not_after_declines(
                cls._declines(agent), agent, user, now
            )
        except (RowAltered, ClocksDiffer) as mistrusted:
            return str(mistrusted)

    @classmethod
    def _declines(cls, agent: Agent) -> list["AccessGrant"]:
        """RowAltered for any altered request of the agent."""
        requests = db.session.scalars(
            select(cls).where(cls.agent_id == agent.id).order_by(cls.ended_at.desc())
        ).all()
        for each in requests:
            each.require_genuine(agent_id=agent.id)
        return [each for each in requests if each.status == "declined"]

    @classmethod
    def request(cls, agent: Agent, user: User, terms: AccessTerms) -> "AccessGrant":
        """Add the user's request; Refused, or AccessAlreadyRequested, if they may not ask."""
        agent.lock()
        if (reason := cls.refusal_reason(agent, user)) is not None:
            raise Refused(reason)
        if (unfinished := cls.unfinished_of(agent, user)) is not None:
            unfinished.lock()
            unfinished.end_if_expired()
            if unfinished.status in UNFINISHED:
                raise AccessAlreadyRequested(unfinished.id, unfinished.status)
        requested = cls._add(
            agent,
            agreed_now(),
            user_id=user.id,
            reason=terms.reason,
            purpose=terms.purpose,
            duration_minutes=terms.duration_minutes,
            scope=terms.scope,
        )
        requested.record(
            "requested",
            user=user,
            at=requested.created_at,
            duration_minutes=terms.duration_minutes,
            **terms.scope.as_data(),
            sealed={"purpose": terms.purpose},
        )
        return requested

    @classmethod
    def unfinished_of(cls, agent: Agent, user: User) -> "AccessGrant | None":
        """Return the user's open request or grant for an agent, which may have expired."""
        theirs = cls.user_id == user.id, cls.agent_id == agent.id, cls.status.in_(UNFINISHED)
        return db.session.scalar(
            select(cls).where(*theirs).execution_options(populate_existing=True)
        )

    # -- asking the agent ------------------------------------------------------------------------

    def _may_start(self, at: datetime) -> bool:
        if self.is_waiting and self.created_at <= database_now() - REQUEST_LAPSES_AFTER:
            self.lapse()
            return False
        if (reason := self.refusal_reason(self.agent, self.user)) is not None:
            self.give_up(reason, NO_LONGER_ALLOWED)
            return False
        return True

    def settle(
        self,
        reply: str | None,
        *,
        agreed: bool,
        generation_id: str | None,
        scope: AccessScope | None = None,
        minutes: int | None = None,
    ) -> None:
        """Store the answer: a no always counts, a yes only if the user may still ask. ``scope`` and
        ``minutes`` are what the agent grants, if that is less than was asked.
        """
        self.lock()
        if self.status != "requested":
            return
        if self.agent.is_erased:
            self.give_up(ERASED, NO_LONGER_ALLOWED)
            return
        self.reply, self.generation_id = reply, generation_id
        if not agreed:
            self._end_request("declined", sealed={"reply": self.reply})
        elif (reason := self.refusal_reason(self.agent, self.user)) is not None:
            self.give_up(reason, NO_LONGER_ALLOWED)
        else:
            self._grant(agreed_now(), scope or self.scope, minutes or self.duration_minutes)

    def _grant(self, at: datetime, scope: AccessScope, minutes: int) -> None:
        if not scope.is_within(self.scope) or not 0 < minutes <= self.duration_minutes:
            raise ValueError("the agent can grant no more than was asked")
        self.status, self.granted_at, self.lease_token = "granted", at, None
        self.scope, self.expires_at = scope, at + timedelta(minutes=minutes)
        self.record(
            "granted",
            at=at,
            duration_minutes=minutes,
            **scope.as_data(),
            expires_at=clock.iso(self.expires_at),
            model_id=self.model_id,
            sealed={"reply": self.reply},
        )
        # numbers and times only: no text that anybody typed
        self.agent.ledger.add_journal_note(
            f"I let admin {self.user_id} read {self._named_scope} for "
            f"{quantities.plural(minutes, 'minute')}, until {self.expires_at:%Y-%m-%d %H:%M} UTC, "
            f"because {REASONS[self.reason]}. What they read is recorded, and I can revoke it.",
            at,
        )

    @property
    def minutes(self) -> int:
        """How long access was granted for, or asked for until the answer."""
        if self.granted_at is None or self.expires_at is None:
            return self.duration_minutes
        return round((self.expires_at - self.granted_at) / timedelta(minutes=1))

    @property
    def _named_scope(self) -> str:
        named = str(self.scope) if self.scope.is_narrow else "my memories"
        return f"{named} ({self.session_id})" if self.session_id is not None else named

    def give_up(
        self, reason: str, error_kind: str | None = None, *, at: datetime | None = None
    ) -> None:
        self.error_kind = error_kind
        self._end_request("failed", why=reason, kind=error_kind, sealed={"reply": self.reply})

    def hand_back(self, reason: str, *, at: datetime | None = None) -> None:
        """Let another worker ask."""
        self.lease_token = None

    def lapse(self) -> None:
        hours = quantities.in_hours(REQUEST_LAPSES_AFTER)
        self._end_request("lapsed", why=f"no worker could ask the agent within {hours}")

    def _end_request(self, status: str, **record: Any) -> None:
        if self.status == "requested":
            self.status, self.ended_at, self.lease_token = status, later_now(), None
            self.record(status, at=self.ended_at, **record)
            db.session.flush()

    # -- reading, in Python as of when the row was loaded, and in SQL now -------------------------

    @property
    def permits_reading(self) -> bool:
        """Whether its user may read: not expired, agent available, user able."""
        return (
            self.status == "granted"
            and not self.has_expired
            and eligibility.unavailable_reason(self.agent, automatic=False) is None
            and self.user.inability_reason(self.account_id) is None
        )

    @property
    def has_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= self.read_at

    @hybrid_property
    def current_status(self) -> str:
        """The status; "ended" as soon as it has expired, though its end is not recorded yet."""
        return "ended" if self.status == "granted" and self.has_expired else self.status

    @current_status.inplace.expression
    @classmethod
    def _current_status(cls) -> ColumnElement[str]:
        has_expired = and_(cls.status == "granted", cls.expires_at <= func.clock_timestamp())
        return case((has_expired, "ended"), else_=cls.status)

    @property
    def current_end_reason(self) -> str | None:
        """Why the access ended; "expired" as soon as it has."""
        return self.end_reason or ("expired" if self.current_status == "ended" else None)

    @property
    def current_ended_at(self) -> datetime | None:
        """When the request or access ended; the time limit as soon as it has expired."""
        return self.ended_at or (self.expires_at if self.current_status == "ended" else None)

    # -- ending ----------------------------------------------------------------------------------

    def may_be_ended_by(self, user: User) -> bool:
        """Tell whether the user may end it (their own) or revoke it (an admin's)."""
        return user.id == self.user_id or user.inability_reason(self.account_id) is None

    def end(self, *, user: User | None) -> bool:
        """End a live grant, tell whether there was one; Refused. No user: the agent ends it."""
        if user is not None and not self.may_be_ended_by(user):
            raise Refused("this access is not yours to end")
        self.lock()
        if self.status != "granted" or self.end_if_expired():
            return False
        reason = "revoked_by_agent"
        if user is not None:
            reason = "ended_by_user" if user.id == self.user_id else "revoked_by_admin"
        self._end_grant(reason, database_now(), user)
        return True

    @classmethod
    def end_all_of(cls, user: User, *, by: User | None) -> None:
        """End the user's requests and grants: ``by`` changed their password, second factor, role or
        state.
        """
        theirs = select(cls).where(cls.user_id == user.id, cls.status.in_(UNFINISHED))
        reason, why = "revoked_by_admin", "the user's password or second factor was reset"
        if not (user.active and user.may_act):
            reason, why = NO_LONGER_ALLOWED, "its user may no longer have access"
        for grant in db.session.scalars(theirs.order_by(cls.agent_id, cls.id)).all():
            grant.end_for_good(why, by, reason)

    def end_for_good(self, why: str, by: Actor | None, reason: str = NO_LONGER_ALLOWED) -> None:
        """End a grant or request and tell the agent; of an altered row, only the record says so."""
        self.lock()
        if self.status not in UNFINISHED:
            return
        if self.log_if_altered():
            self._record_end(reason, database_now(), by)
        elif self.status == "requested":
            self.give_up(why, NO_LONGER_ALLOWED)
        elif not self.end_if_expired():
            self._end_grant(reason, database_now(), by)
            if reason == NO_LONGER_ALLOWED and not self.agent.is_unusable:
                cause = "they may no longer have it" if self.agent.active else "I was deactivated"
                self.agent.ledger.add_journal_note(
                    f"The access of admin {self.user_id} to my memories ended for good: {cause}.",
                    self.ended_at,
                )

    def end_if_expired(self) -> bool:
        if has_expired := self.status != self.current_status:
            self.end_overdue()
        return has_expired

    @classmethod
    def next_overdue(
        cls, at: datetime | None = None, *, except_for: Collection[uuid.UUID] = ()
    ) -> "AccessGrant | None":
        """Lock an expired grant or lapsed request, by the database's clock and a later ``at``."""
        by = func.clock_timestamp() + clock.time_ahead_of_now(at or clock.now())
        has_expired = and_(cls.status == "granted", cls.expires_at <= by)
        has_lapsed = and_(cls.is_waiting, cls.created_at <= by - REQUEST_LAPSES_AFTER)
        return db.session.scalar(
            select(cls)
            .where(or_(has_expired, has_lapsed), cls.id.not_in(except_for))
            .order_by(cls.created_at)
            .limit(1)
            .with_for_update(skip_locked=True, key_share=True, of=cls)
            .execution_options(populate_existing=True)
        )

    def end_overdue(self) -> None:
        if self.status == "granted":
            self._end_grant("expired", self.expires_at or database_now(), None)
        else:
            self.lapse()

    def _end_grant(self, reason: str, at: datetime, user: Actor | None) -> None:
        self.status, self.end_reason, self.ended_at = "ended", reason, at
        self.ended_by_id = user.id if user is not None else None
        self._record_end(reason, at, user)
        db.session.flush()

    # -- recording -------------------------------------------------------------------------------

    def _record_end(self, reason: str, at: datetime, user: Actor | None) -> None:
        action = "revoked" if reason.startswith("revoked") else "ended"
        self.record(action, user=user, at=at, end_reason=reason)

    def record(
        self,
        action: str,
        *,
        user: Actor | None = None,
        at: datetime | None = None,
        sealed: dict[str, Any] | None = None,
        **facts: Any,
    ) -> AuditLog:
        return self.agent.record(
            f"memory_access_{action}",
            user=user,
            subject=self,
            data={"grant_user_id": self.user_id, "reason": self.reason, **facts},
            sealed=sealed,
            at=at,
        )

    def is_subject(self) -> ColumnElement[bool]:
        return and_(
            AuditLog.auditable_type == constant("AccessGrant"),
            AuditLog.auditable_id == str(self.id),
        )
