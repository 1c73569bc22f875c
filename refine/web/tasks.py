"""Reflections and conversations, as lists show them."""

from typing import Any

from sqlalchemy import ColumnExpressionArgument, Select, and_, select

from refine.models import Agent, MemoryTask
from refine.web import scope

_LISTED = (
    MemoryTask.agent_id,
    Agent.name.label("agent_name"),
    MemoryTask.kind,
    MemoryTask.status,
    MemoryTask.end_reason,
    and_(MemoryTask.status == "queued", MemoryTask.attempt > 1).label("is_waiting_for_retry"),
    MemoryTask.due_at,
    MemoryTask.created_at,
    MemoryTask.started_at,
    MemoryTask.ended_at,
    MemoryTask.memories_kept,
    (MemoryTask.prompt_tokens + MemoryTask.completion_tokens).label("tokens_used"),
    MemoryTask.cost_usd,
    MemoryTask.unpriced_calls,
)


def listed_tasks(*conditions: ColumnExpressionArgument[bool]) -> Select[*tuple[Any, ...]]:
    """Return a query for what lists show of this page's tasks, newest first: plain columns."""
    return (
        select(*_LISTED)
        .join(MemoryTask.agent)
        .where(scope.owns(Agent.account_id), *conditions)
        .order_by(MemoryTask.created_at.desc(), MemoryTask.id)
    )
