"""Sums over many tasks: for pages, checks and metrics."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from sqlalchemy import Select, func, select

from refine.extensions import db
from refine.models.account import Account
from refine.models.agent import Agent
from refine.models.memory_task.columns import ENDED, TaskColumns
from refine.models.memory_task.planning import may_be_asked


class Tally(NamedTuple):
    """Ended tasks of one kind and status, added up."""

    kind: str
    status: str
    tasks: int
    memories_kept: int
    cost_usd: Decimal


class Backlog(NamedTuple):
    """Tasks that wait for nothing but a worker; ``since`` when the first of them came due."""

    reflections: int
    conversations: int
    since: datetime | None


class Totals(TaskColumns):
    """What all tasks come to."""

    @classmethod
    def backlog(cls, at: datetime, account_ids: Select[int] | None = None) -> Backlog:
        """Return what waits (of these accounts) though it could be worked on now."""
        waiting = (
            select(
                func.count().filter(cls.kind == "reflection"),
                func.count().filter(cls.kind == "extraction"),
                func.min(cls.due_at),
            )
            .join(Agent, Agent.id == cls.agent_id)
            .join(Account, Account.id == Agent.account_id)
            .where(cls.status == "queued", cls.due_at <= at, may_be_asked())
        )
        if account_ids is not None:
            waiting = waiting.where(cls.in_accounts(account_ids))
        return Backlog(*db.session.execute(waiting).one())

    @classmethod
    def conversations_lost(cls, account_ids: Select[int], since: datetime) -> int:
        """Return how many conversations of these accounts were given up since then, unread."""
        lost = select(func.count()).where(
            cls.kind == "extraction",
            cls.status.in_(("failed", "skipped")),
            cls.error_kind.is_not(None),
            cls.ended_at > since,
            cls.in_accounts(account_ids),
        )
        return db.session.scalar(lost) or 0

    @classmethod
    def tallies(cls) -> Sequence[Tally]:
        """Return counts and sums of all that ended, by kind and status."""
        summed = select(
            cls.kind,
            cls.status,
            func.count(),
            func.sum(cls.memories_kept),
            func.sum(cls.cost_usd),
        )
        grouped = summed.where(cls.status.in_(ENDED)).group_by(cls.kind, cls.status)
        return [Tally(*row) for row in db.session.execute(grouped)]
