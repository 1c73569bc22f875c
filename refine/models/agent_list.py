"""Many agents in one query, for lists and overviews: found, sorted and counted."""

from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.orm import contains_eager

from refine.models.agent import Agent
from refine.models.people import Account
from refine.models.runs import WORKER_LOST
from refine.models.runs.run import LIVE

State = Literal[
    "over_budget", "running", "paused", "inactive", "failed", "lost", "declined", "never"
]
STATES: dict[State, str] = {
    "over_budget": "over budget",
    "running": "session running",
    "failed": "last session failed",
    "lost": "last session lost its worker",
    "declined": "last session declined",
    "never": "never refined",
    "paused": "paused",
    "inactive": "not active",
}
Order = Literal["name", "share", "tokens", "last"]
ORDERS: dict[Order, str] = {
    "name": "name",
    "share": "share of budget",
    "tokens": "tokens",
    "last": "last session",
}


def listed_agents(account_ids: Select[int]) -> Select[Agent]:
    """Return a query for the agents of these accounts."""
    return (
        select(Agent)
        .join(Account, Account.id == Agent.account_id)
        .options(contains_eager(Agent.account))
        .where(Agent.account_id.in_(account_ids))
    )


def count_in_states(account_ids: Select[int], *states: State) -> Select[*tuple[Any, ...]]:
    """Return a query for the number of these accounts' agents in each of the states."""
    counts: list[Any] = [func.count().filter(is_in(state)) for state in states]
    return select(*counts).select_from(Agent).where(Agent.account_id.in_(account_ids))


def is_in(state: State) -> ColumnElement[bool]:
    """Return the SQL condition that an agent is in this state."""
    conditions: dict[State, ColumnElement[bool]] = {
        "over_budget": Agent.is_over_budget & Agent.active,
        "running": Agent.last_session_status.in_(LIVE),
        "failed": Agent.last_session_status == "failed",
        "lost": Agent.last_session_error_kind == WORKER_LOST,
        "declined": Agent.last_session_status == "declined",
        "never": Agent.last_session_id.is_(None),
        "paused": Agent.paused.is_(True),
        "inactive": ~Agent.active,
    }
    return conditions[state]


def name_or_model_contains(text: str) -> ColumnElement[bool]:
    """Return the SQL condition that name or model contains ``text``, whatever the case."""
    return Agent.name.icontains(text, autoescape=True) | Agent.model_id.icontains(
        text, autoescape=True
    )


def in_order(order: Order) -> list[Any]:
    """Return the columns to sort agents by; ties go by id."""
    long_ago = func.coalesce(Agent.last_session_at, func.to_timestamp(0))
    by: dict[Order, Any] = {
        "name": func.lower(Agent.name).asc(),
        "share": Agent.budget_share.desc(),
        "tokens": Agent.core_tokens.desc(),
        "last": long_ago.desc(),
    }
    return [by[order], Agent.id.asc()]
