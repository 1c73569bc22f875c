"""Access grants: a human's request to read one agent's memories, and what came of it.

One row for the request, the agent's answer, and the permission. Times that decide who may read are
the database's, so a wrong process clock cannot extend access.
"""

import uuid
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from sqlalchemy import (
    CheckConstraint,
    ColumnElement,
    ForeignKey,
    Index,
    Select,
    Text,
    and_,
    case,
    func,
    literal,
    or_,
    select,
    text,
)
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapped, column_property, mapped_column, relationship

from refine import clock
from refine.errors import Refused, RowAltered
from refine.extensions import Base, database_now, db
from refine.models.agent import Agent
from refine.models.attested import ChainOwner
from refine.models.audit import AuditLog
from refine.models.columns import Sealed, SealedText
from refine.models.people import Account, User
from refine.models.people.recording import is_recorded
from refine.models.runs.access.asking_rules import AskingRules
from refine.models.runs.access.terms import (
    MAX_MINUTES,
    MIN_MINUTES,
    REASONS,
    AccessTerms,
    valid_purpose,
)
from refine.rules import quantities
from refine.rules.content import bounded_text, reply_text

STATUSES = ("requested", "granted", "declined", "failed", "lapsed", "ended")
# A user may have one of each per agent: who may read already can ask for more.
UNFINISHED = ("requested", "granted")
EndReason = Literal["expired", "ended_by_user", "revoked_by_agent", "revoked_by_admin"]
END_REASONS: tuple[EndReason, ...] = get_args(EndReason)

# What records call the end of a request, and that of a grant.
_ANSWERS = tuple(f"memory_access_{each}" for each in ("granted", "declined", "failed", "lapsed"))
_ENDS = ("memory_access_ended", "memory_access_revoked")

MAX_NOTE_CHARACTERS = 500

# A request that no worker took for this long lapses.
REQUEST_LAPSES_AFTER = timedelta(hours=24)


def _note(field: str, value: object) -> str | None:
    return None if value is None else bounded_text(value, field=field, limit=MAX_NOTE_CHARACTERS)


class AccessAlreadyRequested(Refused):
    """The user has an open request or a live grant for this agent; ``grant_id`` is that one."""

    def __init__(self, grant_id: uuid.UUID, status: str) -> None:
        self.grant_id = grant_id
        super().__init__(
            "you already have access to this agent's memories; end that access first"
            if status == "granted"
            else "you have already asked this agent; wait for its answer"
        )


class AccessGrant(AskingRules, Base):
    """One user's access to one agent's memories, from the request on."""

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
            "status",
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

    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    status: Mapped[str] = mapped_column(
        Text, default="requested", server_default=text("'requested'")
    )
    reason: Mapped[str] = mapped_column(Text)
    sealed_purpose: Mapped[Sealed] = mapped_column("purpose", deferred=True)
    duration_minutes: Mapped[int]
    sealed_reply: Mapped[Sealed | None] = mapped_column("reply", deferred=True)
    generation_id: Mapped[str | None] = mapped_column(Text)
    started_at: Mapped[datetime | None] = mapped_column("asked_at")
    expires_at: Mapped[datetime | None] = mapped_column()
    end_reason: Mapped[str | None] = mapped_column(Text)
    ended_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    sealed_closing_note: Mapped[Sealed | None] = mapped_column("closing_note", deferred=True)

    purpose = SealedText(valid_purpose)
    reply = SealedText(reply_text)
    closing_note = SealedText(_note)

    account: Mapped[Account] = relationship()
    user: Mapped[User] = relationship(foreign_keys="AccessGrant.user_id")
    ended_by: Mapped[User | None] = relationship(foreign_keys=[ended_by_id])

    # whether it had expired when the row was loaded, by the database's clock
    has_expired: Mapped[bool] = column_property(
        func.coalesce(expires_at <= func.clock_timestamp(), False)
    )

    digest_columns = (
        "id",
        "account_id",
        "user_id",
        "agent_id",
        "model_id",
        "status",
        "reason",
        "duration_minutes",
        "created_at",
        "granted_at",
        "expires_at",
        "end_reason",
        "ended_by_id",
        "ended_at",
    )

    @property
    def chain_owner(self) -> ChainOwner:
        """The agent."""
        return ChainOwner(agent_id=self.agent_id)

    def __init__(self, *, agent: Agent, **fields: Any) -> None:
        super().__init__(agent=agent, **{"account": agent.account, **fields})

    # -- requesting ------------------------------------------------------------------------------

    @classmethod
    def request(
        cls, agent: Agent, user: User, terms: AccessTerms, *, is_for_more: bool = False
    ) -> "AccessGrant":
        """Add the user's request; Refused, or AccessAlreadyRequested, if they may not ask.

        ``is_for_more``: they may read now, and until then whatever the agent answers.
        """
        agent.lock()
        if (reason := cls.refusal_reason(agent, user)) is not None:
            raise Refused(reason)
        cls._refuse_second(agent, user, is_for_more=is_for_more)
        requested = cls._add(
            agent,
            database_now(),
            user_id=user.id,
            reason=terms.reason,
            purpose=terms.purpose,
            duration_minutes=terms.duration_minutes,
        )
        requested.record(
            "requested",
            user=user,
            at=requested.created_at,
            duration_minutes=terms.duration_minutes,
            sealed={"purpose": terms.purpose},
        )
        return requested

    @classmethod
    def unfinished_of(cls, agent: Agent, user: User) -> "AccessGrant | None":
        """Return the user's open request or live grant for an agent."""
        found = db.session.scalars(cls._select_unfinished(agent.id, user.id))
        return next((each for each in found if not each.has_expired), None)

    @classmethod
    def _refuse_second(cls, agent: Agent, user: User, *, is_for_more: bool) -> None:
        """The agent is locked, so the second of two concurrent requests is refused."""
        for found in cls._lock_unfinished(agent.id, user.id):
            is_beside = is_for_more and found.status == "granted"
            if not found.end_if_expired() and not is_beside:
                raise AccessAlreadyRequested(found.id, found.status)

    @classmethod
    def _lock_unfinished(cls, agent_id: int, user_id: int) -> Sequence["AccessGrant"]:
        """Lock and return the user's open request and live grant; the agent is locked."""
        open_ones = cls._select_unfinished(agent_id, user_id).with_for_update(
            key_share=True, of=cls
        )
        return db.session.scalars(open_ones.execution_options(populate_existing=True)).all()

    @classmethod
    def _select_unfinished(cls, agent_id: int, user_id: int) -> Select["AccessGrant"]:
        mine = select(cls).where(
            cls.user_id == user_id, cls.agent_id == agent_id, cls.status.in_(UNFINISHED)
        )
        return mine.order_by(cls.status)  # what is granted first

    def ask_for_more(self, user: User, purpose: object, duration_minutes: object) -> "AccessGrant":
        """Add a request of its user, who may read now: for the same agent and reason.

        A yes is a grant of its own and ends this one; until then this one ends when it did.
        """
        if user.id != self.user_id or not self.permits_reading:
            raise Refused("only a user who may currently read these memories can ask for more time")
        terms = AccessTerms.checked(
            reason=self.reason, purpose=purpose, duration_minutes=duration_minutes
        )
        return self.request(self.agent, user, terms, is_for_more=True)

    def allow_asking_again(self) -> None:
        """Let the user of this declined request ask again, on the agent's behalf. Recorded once."""
        self.lock()
        if self.status != "declined":
            raise Refused("this request was not declined, so there is nothing to allow")
        if not self.may_be_repeated:
            self.record("asking_allowed", at=database_now())

    # -- asking the agent ------------------------------------------------------------------------

    @property
    def is_automatic(self) -> bool:
        """Never: a person requests access."""
        return False

    def _may_start(self, at: datetime) -> bool:
        """Tell whether the agent may be asked now; if not, the request ends.

        RowAltered if its end is on record: an earlier version of the row was put back.
        """
        self._require_no_record((*_ANSWERS, *_ENDS))
        if self.has_lapsed:
            self.lapse()
            return False
        if (reason := self.refusal_reason(self.agent, self.user)) is not None:
            self.fail(reason, "refused")
            return False
        return True

    def settle(self, reply: str | None, *, agreed: bool, generation_id: str | None) -> None:
        """Store the agent's answer; a yes grants access if the user may still ask.

        Nothing happens if the request is no longer open.
        """
        self.lock()
        if self.status != "requested":
            return
        self.reply, self.generation_id = reply, generation_id
        if (reason := self.refusal_reason(self.agent, self.user)) is not None:
            self.fail(reason, "refused")
        elif agreed:
            self._grant(database_now())
        else:
            self._end_request("declined", sealed={"reply": self.reply})

    def _grant(self, at: datetime) -> None:
        for other in self._lock_unfinished(self.agent_id, self.user_id):
            if other.status == "granted" and not other.end_if_expired():
                other._end_grant("ended_by_user", at, self.user)  # who asked for more
        self.status, self.granted_at, self.lease_token = "granted", at, None
        self.expires_at = at + timedelta(minutes=self.duration_minutes)
        self.record(
            "granted",
            at=at,
            duration_minutes=self.duration_minutes,
            expires_at=clock.iso(self.expires_at),
            model_id=self.model_id,
            generation_id=self.generation_id,
            sealed={"reply": self.reply},
        )
        # names and times only: no text that the user wrote
        self.agent.ledger.add_journal_note(
            f"I let {self.user.email} read my memories for {self.duration_minutes} minutes, until "
            f"{self.expires_at:%Y-%m-%d %H:%M} UTC, because {REASONS[self.reason]}. What they "
            "read is recorded, and I can revoke it.",
            at,
        )

    # -- ending ----------------------------------------------------------------------------------

    @hybrid_property
    def is_past_expiry(self) -> bool:
        """Whether it has expired, but its end is not recorded yet."""
        return self.status == "granted" and self.has_expired

    @is_past_expiry.inplace.expression
    @classmethod
    def _is_past_expiry(cls) -> ColumnElement[bool]:
        return and_(cls.status == "granted", cls.has_expired)

    @hybrid_property
    def current_status(self) -> str:
        """The status; "ended" as soon as it has expired."""
        return "ended" if self.is_past_expiry else self.status

    @current_status.inplace.expression
    @classmethod
    def _current_status(cls) -> ColumnElement[str]:
        return case((cls.is_past_expiry, "ended"), else_=cls.status)

    @property
    def current_ended_at(self) -> datetime | None:
        """When the request or access ended; the time limit as soon as it has expired."""
        return self.expires_at if self.is_past_expiry else self.ended_at

    @property
    def current_end_reason(self) -> str | None:
        """Why the access ended; "expired" as soon as it has expired."""
        return "expired" if self.is_past_expiry else self.end_reason

    def end(self, *, user: User | None) -> bool:
        """End a live grant; tell whether there was one. ``user`` None: the agent revokes it.

        Its own user ends it, another admin who may see the agent revokes it, others are refused.
        """
        if user is not None and not self.may_be_ended_by(user):
            raise Refused("this access is not yours to end")
        self.lock()
        if self.status != "granted" or self.end_if_expired():
            return False
        reason: EndReason = "revoked_by_agent"
        if user is not None:
            reason = "ended_by_user" if user.id == self.user_id else "revoked_by_admin"
        self._end_grant(reason, database_now(), user)
        for asking in self._lock_unfinished(self.agent_id, self.user_id):
            # nobody can start one that is not genuine, and it must not keep this one open
            if not (asking._is_put_back or asking.leave_altered()):
                asking.fail("the access that was to be continued was ended", "refused")
        return True

    @property
    def _is_put_back(self) -> bool:
        """Whether it is a request whose answer is on record: an earlier version of the row."""
        return self.status == "requested" and self._is_recorded(_ANSWERS)

    @classmethod
    def end_all_of(cls, user: User, *, by: User | None) -> None:
        """End the user's requests and grants, since ``by`` issued a link to set their password.

        A row that was altered outside the application, or of which an earlier version was put back,
        stays as it is: the record ends it.
        """
        theirs = select(cls).where(
            cls.user_id == user.id,
            cls.status.in_(UNFINISHED),
            ~is_recorded("AccessGrant", cls.id, *_ENDS),
        )
        for grant in db.session.scalars(theirs.order_by(cls.agent_id, cls.id)).all():
            grant.lock()
            if grant._is_put_back or grant.leave_altered():
                grant.record("revoked", user=by, at=database_now(), end_reason="revoked_by_admin")
            elif grant.status == "requested":
                grant.fail("the user's password was set through a link", "refused")
            elif grant.status == "granted" and not grant.end_if_expired():
                grant._end_grant("revoked_by_admin", database_now(), by)

    def may_be_ended_by(self, user: User) -> bool:
        """Tell whether the user may end it (their own) or revoke it (an admin's)."""
        return user.id == self.user_id or user.inability_reason(self.account_id) is None

    def end_if_expired(self) -> bool:
        """End a grant that has expired; tell whether it had."""
        if is_past_expiry := self.is_past_expiry:
            self._end_grant("expired", self.expires_at or database_now(), None)
        return is_past_expiry

    def give_up(
        self, reason: str, error_kind: str | None = None, *, at: datetime | None = None
    ) -> None:
        """End the request after a failure; it is not retried."""
        self.fail(reason, error_kind)

    def fail(self, reason: str, error_kind: str | None) -> None:
        """End a request without a valid answer."""
        self.error_kind = error_kind
        self._end_request("failed", why=reason, kind=error_kind, sealed={"reply": self.reply})

    @hybrid_property
    def has_lapsed(self) -> bool:
        """Whether no worker took the request in time, by the database's clock."""
        return self.is_waiting and self.created_at <= database_now() - REQUEST_LAPSES_AFTER

    @has_lapsed.inplace.expression
    @classmethod
    def _has_lapsed(cls) -> ColumnElement[bool]:
        too_old = cls.created_at <= func.clock_timestamp() - REQUEST_LAPSES_AFTER
        return and_(cls.is_waiting, too_old)

    def lapse(self) -> None:
        """End a request that no worker took in time."""
        self._end_request(
            "lapsed",
            why=f"no worker could ask the agent within {quantities.in_hours(REQUEST_LAPSES_AFTER)}",
        )

    def add_closing_note(self, note: object, *, user: User) -> None:
        """Store the user's only closing note, after their grant has ended."""
        self.lock()
        if user.id != self.user_id:
            raise Refused("only the user who had the access may write the closing note")
        if self.status == "granted":
            self.end_if_expired()
        if self.status != "ended":
            raise Refused("the closing note can be written once the access has ended")
        if self.has_closing_note:
            raise Refused("the closing note was already written")
        self.closing_note = note if note is not None else ""
        self.record("noted", user=user, at=database_now(), sealed={"note": self.closing_note})

    @property
    def has_closing_note(self) -> bool:
        """Whether the closing note was written."""
        return self.sealed_closing_note is not None

    @classmethod
    def next_overdue(cls, except_for: Collection[uuid.UUID] = ()) -> "AccessGrant | None":
        """Return an expired grant or lapsed request, locked; None if there is none.

        Skips those that another process has locked.
        """
        return db.session.scalar(
            select(cls)
            .where(or_(cls.is_past_expiry, cls.has_lapsed), cls.id.not_in(except_for))
            .order_by(cls.created_at)
            .limit(1)
            .with_for_update(skip_locked=True, key_share=True, of=cls)
            .execution_options(populate_existing=True)
        )

    def end_overdue(self) -> None:
        """End what ``next_overdue`` found."""
        if self.status == "granted":
            self.end_if_expired()
        else:
            self.lapse()

    def _end_grant(self, reason: EndReason, at: datetime, user: User | None) -> None:
        self._require_no_record(_ENDS)
        self.status, self.end_reason, self.ended_at = "ended", reason, at
        self.ended_by_id = user.id if user is not None else None
        action = "revoked" if reason.startswith("revoked") else "ended"
        self.record(action, user=user, at=at, end_reason=reason)
        db.session.flush()

    def _end_request(self, status: str, **record: Any) -> None:
        if self.status != "requested":
            return
        self._require_no_record((*_ANSWERS, *_ENDS))
        self.status, self.ended_at, self.lease_token = status, database_now(), None
        self.record(status, at=self.ended_at, **record)
        db.session.flush()

    # -- reading and recording -------------------------------------------------------------------

    @hybrid_property
    def permits_reading(self) -> bool:
        """Whether its user may read: not expired by the database's clock, agent and user active.

        In SQL now; in Python as of when the row was loaded.
        """
        return (
            self.current_status == "granted"
            and self.agent.active
            and self.user.inability_reason(self.account_id) is None
            and not self._is_recorded(_ENDS)
        )

    @permits_reading.inplace.expression
    @classmethod
    def _permits_reading(cls) -> ColumnElement[bool]:
        return and_(
            cls.status == "granted",
            ~cls.has_expired,
            ~is_recorded("AccessGrant", cls.id, *_ENDS),
            cls.agent.has(Agent.active),
            cls.user.has(User.is_able(cls.account_id)),
        )

    def _require_no_record(self, actions: Collection[str]) -> None:
        """Raise RowAltered if one is on record: an earlier version of the row was put back."""
        if self._is_recorded(actions):
            raise RowAltered(self.row_name)

    def _is_recorded(self, actions: Collection[str]) -> bool:
        told = is_recorded("AccessGrant", literal(self.id), *actions)
        return bool(db.session.scalar(select(told)))

    def record(
        self,
        action: str,
        *,
        user: User | None = None,
        at: datetime | None = None,
        sealed: dict[str, Any] | None = None,
        **facts: Any,
    ) -> AuditLog:
        """Append a record about this grant to the agent's chain."""
        return self.agent.record(
            f"memory_access_{action}",
            user=user,
            subject=("AccessGrant", self.id),
            data={"grant_user_id": self.user_id, "reason": self.reason, **facts},
            sealed=sealed,
            at=at,
        )
