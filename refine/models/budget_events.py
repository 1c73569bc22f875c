"""Events that no record marks: agents that went over their budget, or are stuck above it."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, cast, delete, exists, func, literal, select
from sqlalchemy.dialects.postgresql import insert

from refine.extensions import db
from refine.models.agent import Agent
from refine.models.attention import is_over_budget
from refine.models.outbox import Delivery, Endpoint
from refine.models.runs.session.totals import is_stuck
from refine.rules.events import EventKind

# Counted from the event.
DELIVERIES_KEPT_FOR = timedelta(days=30)

_QUEUED = ("endpoint_id", "account_id", "event_id", "kind", "data", "created_at", "next_at")


def tell_of_budgets(at: datetime) -> None:
    """Queue for endpoints which agents are over their budgets, and stuck there: each once for as
    long as it is over, and only what began after the endpoint was added.
    """
    _tell("agent.over_budget", is_over_budget(), Agent.over_budget_since, at)
    _tell("agent.stuck", is_over_budget() & is_stuck(), Agent.last_session_ended_at, at)


def _tell(kind: EventKind, is_so: ColumnElement[bool], since: Any, at: datetime) -> None:
    id_ = _event_id(kind)
    # whatever conflicts takes an id all the same
    is_told = exists().where(Delivery.endpoint_id == Endpoint.id, Delivery.event_id == id_)
    figures = func.json_build_object(
        *("agent_id", Agent.id, "core_tokens", Agent.core_tokens),
        *("core_token_budget", Agent.core_token_budget, "core_memories", Agent.core_count),
    )
    told = Endpoint.id, Endpoint.account_id, id_, literal(kind), figures, since, literal(at)
    new = (
        select(*told)
        .join(Agent, Agent.account_id == Endpoint.account_id)
        .where(Endpoint.wants(kind), is_so, since >= Endpoint.created_at, ~is_told)
    )
    db.session.execute(insert(Delivery).from_select(_QUEUED, new).on_conflict_do_nothing())


def _event_id(kind: Any) -> ColumnElement[str]:
    """Return the id of the event, the same for as long as the agent is over its budget."""
    since = cast(func.extract("epoch", Agent.over_budget_since), BigInteger)
    return func.concat(func.replace(kind, ".", "-"), "-", Agent.id, "-", since)


def prune_deliveries(at: datetime) -> int:
    """Delete old deliveries, but those of a state that still holds; return how many."""
    is_same = Agent.id == Delivery.data["agent_id"].as_integer()
    still_so = exists().where(is_same, Delivery.event_id == _event_id(Delivery.kind))
    is_old = Delivery.created_at < at - DELIVERIES_KEPT_FOR
    old = delete(Delivery).where(is_old, Delivery.next_at.is_(None), ~still_so)
    return len(db.session.scalars(old.returning(Delivery.id)).all())
