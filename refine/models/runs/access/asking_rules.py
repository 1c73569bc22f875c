"""Who may ask which agent for access; nothing here reads the database but the clock."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from refine.errors import ClocksDiffer, RowAltered
from refine.extensions import agreed_now
from refine.models.agent import Agent, eligibility
from refine.models.people import User
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


class Decline(Protocol):
    """A request that the agent declined."""

    user_id: int
    asking_allowed_at: datetime | None
    ended_at: datetime | None


def why_not_ask(agent: Agent, user: User) -> str | None:
    """Return why this user may not ask this agent, whatever was asked before; None if they may."""
    if (inability := user.inability_reason(agent.account_id)) is not None:
        return inability
    if not agent.is_genuine:
        return f"{agent.row_name} was changed outside the application"
    try:
        agent.require_own("account")
        now = agreed_now()
    except (RowAltered, ClocksDiffer) as mistrusted:
        return str(mistrusted)
    if (unavailable := eligibility.unavailable_reason(agent, automatic=False)) is not None:
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
    return None


def why_not_after_declines(
    declines: Sequence[Decline], agent: Agent, user: User, now: datetime
) -> str | None:
    """Return why the user may not ask after these declines; None if they may."""
    for decline in declines:
        if (until := _barred_until(decline, user)) is not None and until > now:
            what = f"a request of {user.email}"
            if decline.user_id != user.id:
                what = f"somebody else before {user.email} joined or got a password through a link"
            return (
                f"{agent.name} has declined {what}; they can ask again at "
                f"{until:%Y-%m-%d %H:%M} UTC, or as soon as the agent allows it"
            )
    lately = [decline for decline in declines if _ended_at(decline) > now - _DAY]
    if len(lately) >= MAX_DECLINES_A_DAY:
        return (
            f"{agent.name} has declined {MAX_DECLINES_A_DAY} times in "
            f"{quantities.in_hours(_DAY)} and cannot be asked again yet"
        )
    return None


def _barred_until(decline: Decline, user: User) -> datetime | None:
    """Return until when a decline keeps the user from asking; None if it does not.

    Their own, or one before they joined, or before their password was last set through a link:
    whoever was declined could have invited them or made the link.
    """
    joined_at = max(user.created_at, user.password_linked_at or user.created_at)
    is_theirs = decline.user_id == user.id or joined_at > _ended_at(decline)
    if not is_theirs or decline.asking_allowed_at is not None:
        return None
    return _ended_at(decline) + DECLINE_WAIT


def _ended_at(decline: Decline) -> datetime:
    assert decline.ended_at is not None  # noqa: S101 - for mypy
    return decline.ended_at
