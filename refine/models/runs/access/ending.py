"""How a request and a grant end: by whom, for which reason, and recorded once."""

import uuid
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Self, get_args

from sqlalchemy import (
    ColumnElement,
    ForeignKey,
    Select,
    Text,
    and_,
    case,
    func,
    literal,
    or_,
    select,
)
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapped, column_property, declared_attr, mapped_column, relationship

from refine import clock
from refine.errors import Refused, RowAltered
from refine.extensions import UtcDateTime, database_now, db, later_now
from refine.models.audit import AuditLog
from refine.models.audit.chain import Actor
from refine.models.columns import Sealed, SealedText
from refine.models.people import User
from refine.models.people.recording import is_recorded
from refine.models.runs.access.asking_rules import AskingRules
from refine.rules import quantities
from refine.rules.content import bounded_text, reply_text

# A user may have one of each per agent: who may read already can ask for more.
UNFINISHED = ("requested", "granted")
EndReason = Literal[
    "expired", "ended_by_user", "revoked_by_agent", "revoked_by_admin", "no_longer_allowed"
]
END_REASONS: tuple[EndReason, ...] = get_args(EndReason)

# What records call the end of a request, and that of a grant.
ANSWERS = tuple(f"memory_access_{each}" for each in ("granted", "declined", "failed", "lapsed"))
ENDS = ("memory_access_ended", "memory_access_revoked")

# The error kind of a request that its user may no longer make, whatever the agent answers.
NO_LONGER_ALLOWED = "no_longer_allowed"

MAX_NOTE_CHARACTERS = 500

# A request that no worker took for this long lapses.
REQUEST_LAPSES_AFTER = timedelta(hours=24)


def _note(field: str, value: object) -> str | None:
    return None if value is None else bounded_text(value, field=field, limit=MAX_NOTE_CHARACTERS)


class GrantEnding(AskingRules):
    """The end of a request and of a grant."""

    sealed_reply: Mapped[Sealed | None] = mapped_column("reply", deferred=True)
    expires_at: Mapped[datetime | None] = mapped_column()
    end_reason: Mapped[str | None] = mapped_column(Text)
    ended_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    sealed_closing_note: Mapped[Sealed | None] = mapped_column("closing_note", deferred=True)

    reply = SealedText(reply_text)
    closing_note = SealedText(_note)

    @declared_attr
    def ended_by(self) -> Mapped[User | None]:
        """Who ended or revoked it, if a user did."""
        return relationship(foreign_keys="AccessGrant.ended_by_id")

    @declared_attr
    def read_at(self) -> Mapped[datetime]:
        """When the row was loaded, by the database's clock."""
        return column_property(func.clock_timestamp(type_=UtcDateTime()))

    @hybrid_property
    def has_expired(self) -> bool:
        """Whether it had expired when the row was loaded, by the database's clock."""
        return self.expires_at is not None and self.expires_at <= self.read_at

    @has_expired.inplace.expression
    @classmethod
    def _has_expired(cls) -> ColumnElement[bool]:
        return func.coalesce(cls.expires_at <= func.clock_timestamp(), False)

    # -- what has not ended ----------------------------------------------------------------------

    @classmethod
    def _lock_unfinished(cls, agent_id: int, user_id: int) -> Sequence[Self]:
        """Lock and return the user's open request and live grant; the agent is locked."""
        open_ones = cls._select_unfinished(agent_id, user_id).with_for_update(
            key_share=True, of=cls
        )
        return db.session.scalars(open_ones.execution_options(populate_existing=True)).all()

    @classmethod
    def _select_unfinished(cls, agent_id: int, user_id: int) -> Select[Self]:
        mine = select(cls).where(
            cls.user_id == user_id, cls.agent_id == agent_id, cls.status.in_(UNFINISHED)
        )
        return mine.order_by(cls.status)  # what is granted first

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

    @hybrid_property
    def current_end_reason(self) -> str | None:
        """Why the access ended; "expired" as soon as it has expired."""
        return "expired" if self.is_past_expiry else self.end_reason

    @current_end_reason.inplace.expression
    @classmethod
    def _current_end_reason(cls) -> ColumnElement[str | None]:
        return case((cls.is_past_expiry, "expired"), else_=cls.end_reason)

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
            if not (asking._is_put_back or asking.log_if_altered()):
                asking.fail("the access that was to be continued was ended", NO_LONGER_ALLOWED)
        return True

    @property
    def _is_put_back(self) -> bool:
        """Whether it is a request whose answer is on record: an earlier version of the row."""
        return self.status == "requested" and self._is_recorded(ANSWERS)

    @classmethod
    def end_all_of(cls, user: User, *, by: User | None) -> None:
        """End the user's requests and grants for good, since ``by`` changed what they may do.

        ``by`` issued a link to set their password, or took their role or their state from them.
        """
        theirs = select(cls).where(cls.user_id == user.id, cls.status.in_(UNFINISHED))
        is_barred = not (user.active and user.may_act)
        for grant in db.session.scalars(theirs.order_by(cls.agent_id, cls.id)).all():
            if is_barred:
                grant.end_for_good("its user may no longer have access", by)
            else:
                grant._end_at_once(
                    "revoked_by_admin", "the user's password was set through a link", by
                )

    def end_for_good(self, why: str, by: Actor | None) -> None:
        """End the request or grant, since its user or its agent may no longer have it.

        What made it end may be taken back later: it stays ended, and its agent is told.
        """
        has_ended = self._end_at_once("no_longer_allowed", why, by)
        if has_ended and not self.agent.is_unusable:
            cause = "they may no longer have it" if self.agent.active else "I was deactivated"
            self.agent.ledger.add_journal_note(
                f"The access of admin {self.user_id} to my memories ended for good: {cause}.",
                self.ended_at,
            )

    def _end_at_once(self, reason: EndReason, why: str, by: Actor | None) -> bool:
        """End it if it has not ended, a request for ``why``; tell whether it was a live grant.

        A row that was altered outside the application, or of which an earlier version was put back,
        stays as it is: the record ends it.
        """
        if self.status not in UNFINISHED or self._is_recorded(ENDS):
            return False
        self.lock()
        if self._is_put_back or self.log_if_altered():
            self._record_end(reason, database_now(), by)
        elif self.status == "requested":
            self.fail(why, NO_LONGER_ALLOWED)
        elif self.status == "granted" and not self.end_if_expired():
            self._end_grant(reason, database_now(), by)
            return True
        return False

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

    @property
    def has_lapsed(self) -> bool:
        """Whether no worker took the request in time, by the database's clock."""
        return self.is_waiting and self.created_at <= database_now() - REQUEST_LAPSES_AFTER

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
    def next_overdue(
        cls, at: datetime | None = None, *, except_for: Collection[uuid.UUID] = ()
    ) -> Self | None:
        """Return a grant that has expired, or a request that has lapsed, locked; None if none has.

        By the database's clock, and at ``at`` if that is later. Skips those that another process
        has locked.
        """
        by = func.clock_timestamp() + clock.lead_of(at or clock.now())
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
        """End what ``next_overdue`` found."""
        if self.status == "granted":
            self._end_grant("expired", self.expires_at or database_now(), None)
        else:
            self.lapse()

    def _end_grant(self, reason: EndReason, at: datetime, user: Actor | None) -> None:
        self._require_no_record(ENDS)
        self.status, self.end_reason, self.ended_at = "ended", reason, at
        self.ended_by_id = user.id if user is not None else None
        self._record_end(reason, at, user)
        db.session.flush()

    def _record_end(self, reason: EndReason, at: datetime, user: Actor | None) -> None:
        action = "revoked" if reason.startswith("revoked") else "ended"
        self.record(action, user=user, at=at, end_reason=reason)

    def _end_request(self, status: str, **record: Any) -> None:
        if self.status != "requested":
            return
        self._require_no_record((*ANSWERS, *ENDS))
        self.status, self.ended_at, self.lease_token = status, later_now(), None
        self.record(status, at=self.ended_at, **record)
        db.session.flush()

    # -- recording -------------------------------------------------------------------------------

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
        user: Actor | None = None,
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
