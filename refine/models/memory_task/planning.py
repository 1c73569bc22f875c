"""Which agents a reflection is due for, and which tasks may be worked on now."""

from collections.abc import Sequence
from datetime import datetime
from typing import Self

from sqlalchemy import ColumnElement, Select, and_, case, exists, func, or_, select
from sqlalchemy.orm import aliased

from refine.extensions import db
from refine.models.account import Account
from refine.models.agent import JOURNAL_SHOWN_FOR, Agent
from refine.models.memory import AgentMemory
from refine.models.memory_task.columns import LAPSES_AFTER, TaskColumns
from refine.models.run import LIVE
from refine.models.wrapped_key import WrappedKey

# In each account's own time zone.
REFLECTION_SCHEDULE = "0 3 * * *"


class Planning(TaskColumns):
    """What the clock and the dispatcher ask."""

    @classmethod
    def reflecting_zones(cls) -> Sequence[str]:
        """Return the time zones in which an agent has turned its reflection on."""
        zones = select(Account.time_zone).join(Agent, Agent.account_id == Account.id)
        return db.session.scalars(zones.where(Agent.reflects_daily).distinct()).all()

    @classmethod
    def due_for_reflection(cls, time_zone: str, slot_at: datetime) -> Select[int]:
        """Return a query for the ids of that zone's agents that this slot owes a reflection.

        Those that turned it on and wrote, in the week before the slot, what no completed
        reflection has read.
        """
        mine = (cls.agent_id == Agent.id) & (cls.kind == "reflection")
        reads = exists().where(
            mine, cls.status == "completed", cls.started_at >= AgentMemory.recorded_at
        )
        written = exists().where(
            AgentMemory.agent_id == Agent.id,
            AgentMemory.memory_type == "journal",
            AgentMemory.discarded_at.is_(None),
            AgentMemory.created_at > slot_at - JOURNAL_SHOWN_FOR,
            AgentMemory.recorded_at <= slot_at,
            ~reads,
        )
        served = exists().where(mine, or_(cls.slot_at >= slot_at, cls.status.in_(LIVE)))
        return (
            select(Agent.id)
            .join(Agent.account)
            .where(
                Account.time_zone == time_zone,
                Agent.reflects_daily,
                may_be_asked(),
                written,
                ~served,
            )
        )

    @classmethod
    def waiting(cls, limit: int, at: datetime) -> Sequence[Self]:
        """Return the tasks that no worker was given yet and one may be given, locked.

        The oldest first, and of each agent one at a time.
        """
        other = aliased(cls)
        before = exists().where(
            other.agent_id == cls.agent_id,
            other.id != cls.id,
            or_(
                other.status == "running",
                (other.status == "queued") & other.dispatched_at.is_not(None),
                and_(
                    other.status == "queued",
                    other.due_at <= at,
                    or_(
                        other.created_at < cls.created_at,
                        (other.created_at == cls.created_at) & (other.id < cls.id),
                    ),
                ),
            ),
        )
        return db.session.scalars(
            select(cls)
            .join(cls.agent)
            .join(Agent.account)
            .where(
                cls.status == "queued",
                cls.dispatched_at.is_(None),
                cls.due_at <= at,
                may_be_asked(),
                ~before,
            )
            .order_by(cls.created_at, cls.id)
            .limit(limit)
            .with_for_update(skip_locked=True, key_share=True, of=cls)
            .execution_options(populate_existing=True)
        ).all()

    @classmethod
    def with_workers(cls) -> int:
        """Return how many tasks a worker has, or was given."""
        given = (cls.status == "queued") & cls.dispatched_at.is_not(None)
        counted = select(func.count()).where(or_(cls.status == "running", given))
        return db.session.scalar(counted) or 0

    @classmethod
    def lapsed(cls, at: datetime) -> Select[int]:
        """Return a query for the ids of agents that have a task which waited too long."""
        since = case(*((cls.kind == kind, at - span) for kind, span in LAPSES_AFTER.items()))
        too_long = exists().where(
            cls.agent_id == Agent.id, cls.status == "queued", cls.created_at <= since
        )
        return select(Agent.id).where(too_long)

    @classmethod
    def live_of(cls, agent: Agent) -> Sequence[Self]:
        """Return the agent's queued and running tasks, the oldest first."""
        return db.session.scalars(
            select(cls)
            .where(cls.agent_id == agent.id, cls.status.in_(LIVE))
            .order_by(cls.created_at, cls.id)
            .execution_options(populate_existing=True)
        ).all()


def may_be_asked() -> ColumnElement[bool]:
    """Return the condition of an agent: active, not paused, nor its account, and not erased."""
    readable = exists().where(WrappedKey.id == Agent.data_key_id, WrappedKey.wrapped.is_not(None))
    return and_(Agent.active, ~Agent.paused, ~Account.paused, readable)
