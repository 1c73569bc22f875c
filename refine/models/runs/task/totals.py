"""Sums over many tasks, for pages."""

from datetime import datetime

from sqlalchemy import func, select

from refine.extensions import db
from refine.models.runs.task.task import MemoryTask


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
