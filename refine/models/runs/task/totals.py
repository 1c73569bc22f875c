"""Sums over many tasks, for pages, health checks and metrics."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from sqlalchemy import func, select

from refine.extensions import db
from refine.models.agent import Agent
from refine.models.runs.task.task import ENDED, MemoryTask


class TaskSums(NamedTuple):
    """Ended tasks of one kind and status, added up."""

    kind: str
    status: str
    tasks: int
    memories_kept: int
    cost_usd: Decimal
    unpriced_calls: int


class Backlog(NamedTuple):
    """Tasks that wait only for a worker; ``since`` is when the first of them came due."""

    reflections: int
    conversations: int
    since: datetime | None


def backlog(at: datetime, account_id: int | None = None) -> Backlog:
    """Return the tasks (of this account) that could be worked on now."""
    waiting = (
        select(
            func.count().filter(MemoryTask.kind == "reflection"),
            func.count().filter(MemoryTask.kind == "extraction"),
            func.min(MemoryTask.due_at),
        )
        .join(Agent, Agent.id == MemoryTask.agent_id)
        .where(MemoryTask.is_waiting, MemoryTask.due_at <= at, Agent.is_available(automatic=True))
        .where(MemoryTask.in_account(account_id))
    )
    return Backlog(*db.session.execute(waiting).one())


def conversations_given_up(account_id: int | None, since: datetime) -> int:
    """Return how many conversations (of this account) were given up unread since then."""
    lost = select(func.count()).where(
        MemoryTask.kind == "extraction",
        MemoryTask.status.in_(("failed", "skipped")),
        MemoryTask.has_ended_with_error(),
        MemoryTask.ended_at > since,
        MemoryTask.in_account(account_id),
    )
    return db.session.scalar(lost) or 0


def sums() -> Sequence[TaskSums]:
    """Return counts and sums of all ended tasks, by kind and status."""
    keys = (MemoryTask.kind, MemoryTask.status)
    grouped = (
        select(
            *keys,
            func.count(),
            func.sum(MemoryTask.memories_kept),
            func.sum(MemoryTask.cost_usd),
            func.sum(MemoryTask.unpriced_calls),
        )
        .where(MemoryTask.status.in_(ENDED))
        .group_by(*keys)
    )
    return [TaskSums(*row) for row in db.session.execute(grouped)]
