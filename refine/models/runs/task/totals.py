"""Sums over many tasks, for pages."""

from sqlalchemy import Select, func, select

from refine.extensions import Instant
from refine.models.columns import AccountId
from refine.models.runs.task.task import MemoryTask


def conversations_given_up(account_id: AccountId, since: Instant) -> Select[int]:
    """Return a query for how many conversations (of this account) were given up since then."""
    return select(func.count()).where(
        MemoryTask.kind == "extraction",
        MemoryTask.status.in_(("failed", "skipped")),
        MemoryTask.has_ended_with_error(),
        MemoryTask.ended_at > since,
        MemoryTask.in_account(account_id),
    )
