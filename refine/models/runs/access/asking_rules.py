"""Who may ask which agent for access, and how earlier requests ended."""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Self

from sqlalchemy import BigInteger, ForeignKey, Select, Text, bindparam, func, or_, select, true
from sqlalchemy.orm import Mapped, mapped_column

from refine.errors import ClocksDiffer, RowAltered
from refine.extensions import agreed_now, db, instant
from refine.extensions.statements import plain_query
from refine.models.agent import Agent
from refine.models.agent.configuring import CHANGE_HISTORY_WINDOW
from refine.models.attested import Attested
from refine.models.audit import AuditLog
from refine.models.columns import constant
from refine.models.people import User
from refine.models.runs.run import Run
from refine.rules import quantities
from refine.rules.model_names import is_rehearsal_model

# Nobody may request access for this long after others changed who the agent is.
IDENTITY_CHANGE_WAIT = timedelta(hours=24)
# Nor may a user whose password was set through a link: its issuer could be using the account.
PASSWORD_LINK_WAIT = timedelta(hours=24)
# A model that is asked again and again eventually says yes.
MAX_DECLINES_A_DAY = 10
_DAY = timedelta(days=1)
# After a decline, the user may not ask it again for this long, unless the agent allows it.
DECLINE_WAIT = timedelta(days=7)


class AskedCounts(NamedTuple):
    """How often an agent was asked for access, and what it answered."""

    asked: int
    granted: int
    declined: int


class AskingRules(Run, Attested):
    """The part of a request that decides whether its user, or another one, may ask again."""

    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    reason: Mapped[str] = mapped_column(Text)
    granted_at: Mapped[datetime | None]

    # -- may this user ask? ----------------------------------------------------------------------

    @classmethod
    def refusal_reason(cls, agent: Agent, user: User) -> str | None:
        """Return why this user may not ask this agent; None if they may."""
        if (inability := user.inability_reason(agent.account_id)) is not None:
            return inability
        if not agent.is_genuine:
            return f"{agent.row_name} was changed outside the application"
        try:
            agent.require_own("account")
            now = agreed_now()
        except (RowAltered, ClocksDiffer) as mistrusted:
            return str(mistrusted)
        if (unavailable := agent.unavailable_reason(automatic=False)) is not None:
            return unavailable
        linked_at = user.password_linked_at
        if linked_at is not None and linked_at > now - PASSWORD_LINK_WAIT:
            return (
                f"the password of {user.email} was set through a link at "
                f"{linked_at:%Y-%m-%d %H:%M} UTC; they can request access "
                f"{quantities.in_hours(PASSWORD_LINK_WAIT)} after that"
            )
        if is_rehearsal_model(agent.model_id) and not agent.account.is_demo:
            return f"{agent.name} uses the rehearsal model, which cannot grant access"
        changed_at = agent.identity_changed_at
        if changed_at is not None and changed_at > now - IDENTITY_CHANGE_WAIT:
            return (
                f"the name, the model or a prompt of {agent.name} was changed at "
                f"{changed_at:%Y-%m-%d %H:%M} UTC; it can be asked "
                f"{quantities.in_hours(IDENTITY_CHANGE_WAIT)} after that"
            )
        try:
            declines = cls._declines(agent)
        except RowAltered as altered:
            return str(altered)
        return cls._reason_in(declines, agent, user, now)

    @classmethod
    def _declines(cls, agent: Agent) -> list[Self]:
        """Return the requests that the agent declined, as its records name them, newest first.

        RowAltered if one is no longer as its decline left it.
        """
        on_record = select(AuditLog.auditable_id).where(
            AuditLog.agent_id == agent.id, AuditLog.action == "memory_access_declined"
        )
        ids = {uuid.UUID(id_) for id_ in db.session.scalars(on_record)}
        found = {
            grant.id: grant for grant in db.session.scalars(select(cls).where(cls.id.in_(ids)))
        }
        for id_ in ids:
            grant = found.get(id_)
            if grant is None or grant.status != "declined":
                raise RowAltered(f"{cls.__name__} {id_}")
            grant.require_genuine()
        return sorted(found.values(), key=_declined_at, reverse=True)

    @classmethod
    def _reason_in(
        cls, declines: Sequence[Self], agent: Agent, user: User, now: datetime
    ) -> str | None:
        """Return why the user may not ask after these declines; None if they may."""
        if (barring := cls._barring_decline(user, declines, now)) is not None:
            what = f"a request of {user.email}"
            if barring.user_id != user.id:
                what = f"somebody else before {user.email} joined or got a password through a link"
            return (
                f"{agent.name} has declined {what}; they can ask again at "
                f"{_declined_at(barring) + DECLINE_WAIT:%Y-%m-%d %H:%M} UTC, or as soon as the "
                "agent allows it"
            )
        since = now - _DAY
        if sum(_declined_at(grant) > since for grant in declines) >= MAX_DECLINES_A_DAY:
            return (
                f"{agent.name} has declined {MAX_DECLINES_A_DAY} times in "
                f"{quantities.in_hours(_DAY)} and cannot be asked again yet"
            )
        return None

    @classmethod
    def _barring_decline(cls, user: User, declines: Sequence[Self], now: datetime) -> Self | None:
        """Return the decline that keeps the user from asking; None if they may.

        Their own, or one before they joined, or before their password was last set through a link:
        whoever was declined could have invited them or made the link.
        """
        since = now - DECLINE_WAIT
        joined_at = max(user.created_at, user.password_linked_at or user.created_at)
        for grant in declines:
            is_theirs = grant.user_id == user.id or joined_at > _declined_at(grant)
            if is_theirs and _declined_at(grant) > since and not grant.may_be_repeated:
                return grant
        return None

    @property
    def may_be_repeated(self) -> bool:
        """Whether the agent allowed the user of this declined request to ask again."""
        allowed = self.select_records().where(AuditLog.action == "memory_access_asking_allowed")
        return any(record.is_linked() for record in db.session.scalars(allowed))

    def select_records(self) -> Select[AuditLog]:
        """Return a query for the audit records of this request and grant."""
        return select(AuditLog).where(
            AuditLog.auditable_type == constant("AccessGrant"),
            AuditLog.auditable_id == str(self.id),
        )

    # -- how often was the agent asked? ----------------------------------------------------------

    @classmethod
    def asked_counts(cls, agent: Agent, user: User | None = None) -> AskedCounts:
        """Count the requests to this agent, of one user or of all, and its answers."""
        user_id = user.id if user is not None else None
        counts = cls._asked_counts(is_of_user=user_id is not None)
        return AskedCounts(*counts.rows(agent_id=agent.id, user_id=user_id)[0])

    @classmethod
    @plain_query
    def _asked_counts(cls, *, is_of_user: bool) -> Select[*tuple[Any, ...]]:
        return select(
            func.count(), func.count(cls.granted_at), func.count().filter(cls.status == "declined")
        ).where(
            cls.agent_id == bindparam("agent_id"),
            cls.user_id == bindparam("user_id") if is_of_user else true(),
        )

    @classmethod
    def asked_lately(
        cls, agent: Agent, at: datetime, *, except_for: uuid.UUID | None = None
    ) -> dict[str, int]:
        """Count the requests within ``CHANGE_HISTORY_WINDOW`` before ``at``, without the given one.

        How many there were, of how many users, and how many the agent declined, by its records.
        """
        (counts,) = _asked_lately().rows(
            agent_id=agent.id, since=at - CHANGE_HISTORY_WINDOW, except_for=str(except_for)
        )
        return dict(counts._asdict())


@plain_query
def _asked_lately() -> Select[*tuple[Any, ...]]:
    requested = AuditLog.action == "memory_access_requested"
    declined = AuditLog.action == "memory_access_declined"
    return select(
        func.count().filter(requested).label("requests"),
        func.count(AuditLog.user_id.distinct()).filter(requested).label("users"),
        func.count().filter(declined).label("declined"),
    ).where(
        AuditLog.agent_id == bindparam("agent_id", type_=BigInteger),
        or_(requested, declined),
        AuditLog.auditable_id != bindparam("except_for"),
        AuditLog.created_at > instant("since"),
    )


def _declined_at(grant: AskingRules) -> datetime:
    return grant.ended_at or grant.created_at
