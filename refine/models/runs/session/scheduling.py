"""Which agents an automatic session is due for, and which must wait."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from sqlalchemy import ColumnElement, Select, and_, exists, or_, select
from sqlalchemy.orm import aliased

from refine import settings
from refine.extensions import db
from refine.models.agent import Agent
from refine.models.audit import AuditLog
from refine.models.ledger import AgentMemory
from refine.models.people import Account
from refine.models.runs.run import blocked_reason
from refine.models.runs.session.session import RefinementSession
from refine.models.runs.session.state import ANSWERED
from refine.rules.pacing import (
    MAX_DOUBLINGS,
    MAX_QUIET_SLOTS,
    MAX_RETRIES,
    RETRY_PAUSES,
    cooldown,
    retry_pause,
)

# A retry that is overdue by this much is dropped.
_RETRIED_WITHIN = timedelta(days=31)

_Session = RefinementSession


# -- who is due -----------------------------------------------------------------------------------


def due_for_slot(account: Account, slot_at: datetime) -> Select[int]:
    """Return a query for the ids of the account's agents that are due a session for this slot.

    Leaves out agents that were refined since the slot came, that have a session for it, or that
    have a session that has ended since then, answered or with a failure that may be retried.
    """
    answered_or_retried = and_(
        _Session.ended_at >= slot_at,
        or_(
            _Session.status.in_(ANSWERED),
            _Session.may_be_retried,
        ),
    )
    handled = exists().where(
        _Session.agent_id == Agent.id, or_(_Session.slot_at == slot_at, answered_or_retried)
    )
    return select(Agent.id).where(
        Agent.account_id == account.id,
        Agent.may_be_refined,
        Agent.not_refined_since(slot_at),
        ~handled,
    )


def has_live_session() -> ColumnElement[bool]:
    """Return the SQL condition that the agent has a live session."""
    return exists().where(_Session.agent_id == Agent.id, _Session.is_live)


def over_budget(at: datetime) -> Select[int]:
    """Return a query for the ids of agents over their budget that may be asked.

    Without a live session, and past the shortest cool-down; ``must_wait`` checks the rest.
    """
    shortest = cooldown(settings.current().cooldown_hours, 0)
    answered_lately = exists().where(
        _Session.agent_id == Agent.id,
        _Session.status.in_(ANSWERED),
        _Session.ended_at > at - shortest,
    )
    return select(Agent.id).where(
        Agent.may_be_refined, Agent.is_over_budget, ~has_live_session(), ~answered_lately
    )


def whose_last_failed(at: datetime) -> Select[int]:
    """Return a query for the ids of agents whose last session was automatic, and failed.

    Only if attempts are left and the shortest pause is over; ``is_retry_due`` checks the rest.
    """
    later = aliased(_Session)
    superseded = exists().where(
        later.agent_id == _Session.agent_id, later.created_at > _Session.created_at
    )
    return (
        select(Agent.id)
        .join(_Session, _Session.agent_id == Agent.id)
        .where(
            _Session.may_be_retried,
            _Session.attempt <= MAX_RETRIES,
            _Session.created_at > at - _RETRIED_WITHIN,
            _Session.ended_at <= at - RETRY_PAUSES[0],
            Agent.may_be_refined,
            ~superseded,
        )
    )


# -- who must wait --------------------------------------------------------------------------------


def forbidden_reason(agent: Agent, at: datetime) -> str | None:
    """Return what forbids automatic sessions of this agent, in words; None if nothing does.

    What blocks automatic runs, and the floor against slow erosion.
    """
    return blocked_reason(agent, at, automatic=True) or _Session.erosion_reason(agent, at)


def automatic_skip_reason(agent: Agent, at: datetime) -> str | None:
    """Return why the clock does not ask this agent now, in words; None if it may.

    What forbids a sweep too, and that nothing has changed.
    """
    if (reason := forbidden_reason(agent, at)) is not None:
        return reason
    if _is_unchanged(agent, at):
        return "nothing changed since the last session, which removed nothing"
    return None


def must_wait(agent: Agent, at: datetime) -> bool:
    """Tell whether an agent over its budget must wait before it is asked.

    Because its last session was too recent, or failed and has its own retry, or because a session
    could remove nothing.
    """
    if _Session.removable_now(agent, at) == 0:
        return True
    latest = _Session.newest_of(agent)
    if latest is not None and _is_failure_of_slot(latest, at):
        return True
    until = cools_down_until(agent)
    return until is not None and at < until


def cools_down_until(agent: Agent) -> datetime | None:
    """Return when an agent over its budget may be asked again; None if it was never asked."""
    answered = _answered(agent)
    if not answered or answered[0].ended_at is None:
        return None
    fruitless = list(takewhile(lambda session: not session.had_effect, answered))
    pause = cooldown(settings.current().cooldown_hours, len(fruitless))
    return answered[0].ended_at + pause


def is_retry_due(session: RefinementSession, at: datetime) -> bool:
    """Tell whether this failed session, its agent's last one, is to be retried now."""
    pause = retry_pause(session.attempt)
    if pause is None or session.ended_at is None or not _is_failure_of_slot(session, at):
        return False
    is_needed = session.trigger != "over_budget" or session.agent.is_over_budget
    return (
        is_needed
        and session.ended_at + pause <= at
        and not automatic_skip_reason(session.agent, at)
    )


def _is_failure_of_slot(session: RefinementSession, at: datetime) -> bool:
    """Whether this automatic session failed, and no slot has come since."""
    if session.ended_at is None or not session.may_be_retried:
        return False
    return session.ended_at >= session.agent.account.last_slot(at)


def _answered(agent: Agent) -> Sequence[RefinementSession]:
    """The agent's last sessions that it answered, newest first."""
    return db.session.scalars(
        select(_Session)
        .where(_Session.agent_id == agent.id, _Session.status.in_(ANSWERED))
        .order_by(_Session.created_at.desc())
        .limit(MAX_DOUBLINGS)
    ).all()


def _is_unchanged(agent: Agent, at: datetime) -> bool:
    """Whether core memories and settings are as the last session left them, which removed nothing.

    Only after a session that was completed, and for ``MAX_QUIET_SLOTS`` slots. Never true for a
    ledger that is shown in batches, as the next session shows another one.
    """
    last = next(iter(_answered(agent)), None)
    if last is None or last.status != "completed" or last.had_effect or last.undone_at is not None:
        return False
    if _slots_between(agent.account, last.ended_at, at) > MAX_QUIET_SLOTS:
        return False
    if last.batch_through_id is not None:
        return False
    saved_meanwhile = and_(
        AgentMemory.recorded_at > last.started_at,
        AgentMemory.session_id.is_distinct_from(last.id),
    )
    memory_changed = exists().where(
        AgentMemory.agent_id == agent.id,
        AgentMemory.memory_type == "core",
        or_(AgentMemory.updated_at > last.ended_at, saved_meanwhile),
    )
    settings_changed = exists().where(
        AuditLog.agent_id == agent.id,
        AuditLog.action == "agent_settings_update",
        AuditLog.created_at > last.ended_at,
    )
    return not db.session.scalar(select(or_(memory_changed, settings_changed)))


def _slots_between(account: Account, ended_at: datetime | None, at: datetime) -> int:
    """How many of the account's slots came since then; counts no further than needed."""
    slots, slot = 0, account.last_slot(at)
    while ended_at is not None and slot > ended_at and slots <= MAX_QUIET_SLOTS:
        slots, slot = slots + 1, account.last_slot(slot - timedelta(microseconds=1))
    return slots
