"""Many agents in one query, for lists and overviews: found, sorted and counted."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, Select, case, func, select, true

from refine.extensions import db
from refine.models.agent import Agent, eligibility
from refine.models.people import Account
from refine.models.runs.run import LIVE, WORKER_LOST

State = Literal[
    "over_budget",
    "running",
    "paused",
    "inactive",
    "failed",
    "lost",
    "rolled_back",
    "declined",
    "never",
]
STATES: dict[State, str] = {
    "over_budget": "over budget",
    "running": "session running",
    "failed": "last session failed",
    "lost": "last session lost its worker",
    "rolled_back": "last session rolled back",
    "declined": "last session declined",
    "never": "never refined",
    "paused": "paused",
    "inactive": "not active",
}
Order = Literal["name", "share", "tokens", "last"]


def listed_agents(*conditions: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    """Return a query for what lists show of these agents: plain columns, not models."""
    columns = select(
        Agent.id,
        Agent.name,
        Agent.model_id,
        Agent.core_tokens,
        Agent.core_token_budget,
        Agent.over_budget,
        Agent.active,
        Agent.paused,
        Agent.last_session_id,
        Agent.last_session_at,
        Agent.last_session_status,
        Agent.last_session_undone_at,
        case((eligibility.is_available(automatic=True), Account.next_due_at)).label(
            "next_session_at"
        ),
        Account.name.label("account_name"),
        Account.slug.label("account_slug"),
    )
    return columns.join(Account, Account.id == Agent.account_id).where(*conditions)


def count_agents(*states: State, of: ColumnElement[bool] | None = None) -> Select[*tuple[Any, ...]]:
    """Return a query for the number of agents, and of those in each of the states."""
    whose = true() if of is None else of
    counted = (true(), *map(is_in, states))
    # each by itself, as an index has the few that are in a state
    return select(
        *(
            select(func.count()).select_from(Agent).where(whose, each).scalar_subquery()
            for each in counted
        )
    )


class Totals(NamedTuple):
    """How many agents there are, their token mass, and how many of them are over their budget."""

    agents: int
    tokens: int
    over_budget: int


def totals(*conditions: ColumnElement[bool]) -> Totals:
    """Return the totals of the agents that meet the conditions."""
    summed = select(
        func.count(),
        func.coalesce(func.sum(Agent.core_tokens), 0),
        func.count().filter(is_in("over_budget")),
    ).where(*conditions)
    return Totals(*db.session.execute(summed).one())


# Each state in SQL for many agents, and in Python for one, by its row as it was loaded.
_CONDITIONS: dict[State, tuple[Callable[[], ColumnElement[bool]], Callable[[Agent], bool]]] = {
    "over_budget": (
        lambda: Agent.over_budget & Agent.active,
        lambda agent: agent.over_budget and agent.active,
    ),
    "running": (
        lambda: Agent.last_session_status.in_(LIVE),
        lambda agent: agent.last_session_status in LIVE,
    ),
    "lost": (
        lambda: Agent.last_session_error_kind == WORKER_LOST,
        lambda agent: agent.last_session_error_kind == WORKER_LOST,
    ),
    "never": (
        lambda: Agent.last_session_id.is_(None),
        lambda agent: agent.last_session_id is None,
    ),
    "paused": (lambda: Agent.paused.is_(True), lambda agent: agent.paused),
    "inactive": (lambda: ~Agent.active, lambda agent: not agent.active),
}


def is_in(state: State) -> ColumnElement[bool]:
    """Return the SQL condition that an agent is in this state."""
    if state in _CONDITIONS:
        return _CONDITIONS[state][0]()
    return Agent.last_session_status == state


def states_of(agent: Agent) -> list[State]:
    """Return the states of an agent as ``is_in`` has them."""
    return [
        state
        for state in STATES
        if (
            _CONDITIONS[state][1](agent)
            if state in _CONDITIONS
            else agent.last_session_status == state
        )
    ]


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
