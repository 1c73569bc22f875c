"""Many agents with their figures in one query, for lists and overviews."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, func, select, true
from sqlalchemy.orm import contains_eager

from refine.models.agent import Agent
from refine.models.ledger import AgentMemory
from refine.models.people import Account
from refine.models.runs import WORKER_LOST, RefinementSession

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

_last = (
    select(
        RefinementSession.id,
        RefinementSession.status,
        RefinementSession.created_at,
        RefinementSession.undone_at,
        RefinementSession.error_kind,
        RefinementSession.is_live.label("is_live"),
    )
    .where(RefinementSession.agent_id == Agent.id)
    .order_by(RefinementSession.created_at.desc())
    .limit(1)
    .lateral("last_session")
)
_kept = AgentMemory.select_core_totals().where(AgentMemory.agent_id == Agent.id).lateral("kept")
_share = _kept.c.tokens * 1.0 / Agent.core_token_budget


@dataclass(frozen=True)
class ListedAgent:
    """An agent, its kept core memories and their tokens, and its latest session."""

    agent: Agent
    memories: int
    tokens: int
    last_id: Any
    last_status: str | None
    last_at: datetime | None
    last_undone_at: datetime | None

    @property
    def is_over_budget(self) -> bool:
        """Whether the tokens exceed the budget."""
        return self.agent.exceeds_budget(self.tokens)

    @property
    def percent(self) -> int:
        """The tokens in percent of the budget."""
        return round(100 * self.tokens / self.agent.core_token_budget)


def listed_agents(account_ids: Select[int]) -> Select[Any]:
    """Return a query for the agents of these accounts: the columns of ``ListedAgent``."""
    return (
        select(
            Agent,
            _kept.c.memories,
            _kept.c.tokens,
            _last.c.id,
            _last.c.status,
            _last.c.created_at,
            _last.c.undone_at,
        )
        .select_from(Agent)
        .join(Account, Account.id == Agent.account_id)
        .join(_kept, true())
        .outerjoin(_last, true())
        .options(contains_eager(Agent.account))
        .where(Agent.account_id.in_(account_ids))
    )


def count_in_states(account_ids: Select[int], *states: State) -> Select[*tuple[Any, ...]]:
    """Return a query for the number of these accounts' agents in each of the states."""
    rows = listed_agents(account_ids).with_only_columns(
        *(is_in(state).label(state) for state in states)
    )
    listed = rows.subquery()
    columns: list[Any] = [func.count().filter(listed.c[state]) for state in states]
    return select(*columns)


def is_in(state: State) -> ColumnElement[bool]:
    """Return the SQL condition that a row of ``listed_agents`` is in this state."""
    conditions: dict[State, ColumnElement[bool]] = {
        "over_budget": Agent.budget_exceeded_by(_kept.c.tokens) & Agent.active,
        "running": _last.c.is_live,
        "failed": _last.c.status == "failed",
        "lost": _last.c.error_kind == WORKER_LOST,
        "declined": _last.c.status == "declined",
        "never": _last.c.id.is_(None),
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
    """Return the columns to sort ``listed_agents`` by; ties go by id."""
    long_ago = func.coalesce(_last.c.created_at, func.to_timestamp(0))
    by: dict[Order, Any] = {
        "name": func.lower(Agent.name).asc(),
        "share": _share.desc(),
        "tokens": _kept.c.tokens.desc(),
        "last": long_ago.desc(),
    }
    return [by[order], Agent.id.asc()]
