"""Sums over many tasks, for pages, health checks and metrics."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from sqlalchemy import Select, func, select

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


def backlog(at: datetime, account_ids: Select[int] | None = None) -> Backlog:
    """Return the tasks (of these accounts) that could be worked on now."""
    waiting = (
        select(
            func.count().filter(MemoryTask.kind == "reflection"),
            func.count().filter(MemoryTask.kind == "extraction"),
            func.min(MemoryTask.due_at),
        )
        .join(Agent, Agent.id == MemoryTask.agent_id)
        .where(MemoryTask.is_waiting, MemoryTask.due_at <= at, Agent.is_available(automatic=True))
    )
    if account_ids is not None:
        waiting = waiting.where(MemoryTask.in_accounts(account_ids))
    return Backlog(*db.session.execute(waiting).one())


def conversations_given_up(account_ids: Select[int], since: datetime) -> int:
    """Return how many conversations of these accounts were given up unread since then."""
    lost = select(func.count()).where(
        MemoryTask.kind == "extraction",
        MemoryTask.status.in_(("failed", "skipped")),
        MemoryTask.has_ended_with_error(),
        MemoryTask.ended_at > since,
        MemoryTask.in_accounts(account_ids),
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
