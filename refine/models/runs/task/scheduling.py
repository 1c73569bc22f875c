"""Which agents are due a reflection, which tasks may be worked on, and which were given up."""

import uuid
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Select, and_, exists, func, or_, select
from sqlalchemy.orm import aliased

from refine.extensions import Instant, db
from refine.models.agent import Agent, eligibility
from refine.models.columns import AccountId
from refine.models.ledger import AgentMemory
from refine.models.people import Account
from refine.models.runs.task.task import MemoryTask

# In each account's own time zone.
REFLECTION_SCHEDULE = "0 3 * * *"


def reflecting_zones() -> Sequence[str]:
    """Return the time zones of agents with a daily reflection."""
    zones = select(Account.time_zone).join(Agent, Agent.account_id == Account.id)
    return db.session.scalars(zones.where(Agent.reflects_daily).distinct()).all()


def due_for_reflection(time_zone: str, slot_at: datetime) -> Select[int]:
    """Return a query for the ids of that zone's agents that are due a reflection for this slot.

    They have a daily reflection, and in the journal of the week before the slot something that no
    completed reflection has read.
    """
    mine = (MemoryTask.agent_id == Agent.id) & (MemoryTask.kind == "reflection")
    was_read = (
        exists()
        .where(
            mine,
            MemoryTask.status == "completed",
            MemoryTask.started_at >= AgentMemory.recorded_at,
        )
        # two levels down, SQLAlchemy does not find the agent by itself
        .correlate(Agent, AgentMemory)
    )
    written = exists().where(
        AgentMemory.agent_id == Agent.id,
        AgentMemory.is_shown_journal(slot_at),
        ~AgentMemory.is_note(),
        AgentMemory.recorded_at <= slot_at,
        ~was_read,
    )
    handled = exists().where(mine, or_(MemoryTask.slot_at >= slot_at, MemoryTask.is_live))
    return (
        select(Agent.id)
        .join(Account, Account.id == Agent.account_id)
        .where(
            Account.time_zone == time_zone,
            Agent.reflects_daily,
            eligibility.is_available(automatic=True),
            written,
            ~handled,
        )
    )


def due(limit: int, at: datetime) -> Sequence[uuid.UUID]:
    """Return the ids of the tasks that a worker may begin: the oldest first, one per agent."""
    other = aliased(MemoryTask)
    earlier = exists().where(
        other.agent_id == MemoryTask.agent_id,
        other.id != MemoryTask.id,
        or_(
            other.is_held,
            and_(
                other.is_waiting,
                other.due_at <= at,
                or_(
                    other.created_at < MemoryTask.created_at,
                    (other.created_at == MemoryTask.created_at) & (other.id < MemoryTask.id),
                ),
            ),
        ),
    )
    return db.session.scalars(
        MemoryTask.select_waiting(limit)
        .join(Agent, Agent.id == MemoryTask.agent_id)
        .where(MemoryTask.due_at <= at, eligibility.is_available(automatic=True), ~earlier)
    ).all()


def lapsed(at: datetime) -> Select[int]:
    """Return a query for the ids of agents that have a task which waited too long."""
    has_one = exists().where(MemoryTask.agent_id == Agent.id, MemoryTask.lapsed_by(at))
    return select(Agent.id).where(has_one)


def waiting_of(agent: Agent) -> Sequence[MemoryTask]:
    """Return the agent's waiting tasks, the oldest first."""
    return db.session.scalars(
        select(MemoryTask)
        .where(MemoryTask.agent_id == agent.id, MemoryTask.is_waiting)
        .order_by(MemoryTask.created_at, MemoryTask.id)
        .execution_options(populate_existing=True)
    ).all()


def conversations_given_up(account_id: AccountId, since: Instant) -> Select[int]:
    """Return a query for how many conversations (of this account) were given up since then."""
    return select(func.count()).where(
        MemoryTask.kind == "extraction",
        MemoryTask.status.in_(("failed", "skipped")),
        MemoryTask.has_ended_with_error(),
        MemoryTask.ended_at > since,
        MemoryTask.in_account(account_id),
    )
