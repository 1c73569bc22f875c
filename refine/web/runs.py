"""Reflections and conversations as lists show them, and the latest runs of either kind."""

from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import ColumnExpressionArgument, Select, and_, select

from refine.extensions import db
from refine.models import Agent, MemoryTask, RefinementSession
from refine.web import scope
from refine.web.sessions import listed

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


Kind = type[RefinementSession] | type[MemoryTask]
State = Literal["any", "live", "failed"]


def latest(
    kind: Kind, limit: int, *, state: State = "any", error: str = "", agent: Agent | None = None
) -> Sequence[Any]:
    """Return what lists show of this page's latest runs, newest first.

    ``state``: ``failed`` are those that ended with an error; ``error``: with this one.
    """
    found = listed() if kind is RefinementSession else listed_tasks()
    if state == "live":
        found = found.where(kind.is_live)
    elif state == "failed":
        found = found.where(kind.has_ended_with_error())
    if error:
        found = found.where(kind.error_kind == error)
    if agent is not None:
        found = found.where(kind.agent_id == agent.id)
    return db.session.execute(found.limit(limit)).all()
