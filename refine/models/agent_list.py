"""Many agents in one query, for lists and overviews: found, sorted, counted, the worst by name."""

from typing import Any, Literal, NamedTuple, get_args

from sqlalchemy import ColumnElement, Select, case as sql_case, func, null, or_, select, true
from sqlalchemy.orm import joinedload

from refine.extensions import db
from refine.models.agent import Agent, eligibility
from refine.models.people import Account
from refine.models.runs.run import LIVE, WORKER_LOST
from refine.models.runs.session import AttentionStatus, RefinementSession
from refine.models.runs.session.totals import Stuck, stuck_above_budget

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
Order = Literal["worst", "name", "share", "tokens", "last"]


def listed_agents(*conditions: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    """Return a query for what lists show of these agents: plain columns, not models."""
    columns = select(
        Agent.id,
        Agent.name,
        Agent.model_id,
        Agent.core_tokens,
        Agent.core_count,
        Agent.core_token_budget,
        Agent.over_budget,
        Agent.active,
        Agent.paused,
        Agent.last_session_id,
        Agent.last_session_at,
        Agent.last_session_status,
        Agent.last_session_undone_at,
        Agent.last_refinement_at,
        sql_case((eligibility.is_available(automatic=True), Account.next_due_at)).label(
            "next_session_at"
        ),
        Account.name.label("account_name"),
        Account.slug.label("account_slug"),
    )
    return columns.join(Account, Account.id == Agent.account_id).where(*conditions)


class Totals(NamedTuple):
    agents: int
    tokens: int
    over_budget: int
    of: int


def totals(of: ColumnElement[bool], *conditions: ColumnElement[bool]) -> Totals:
    """Sum up the agents that meet the conditions, among all ``of`` these."""
    summed = select(
        func.count(),
        func.coalesce(func.sum(Agent.core_tokens), 0),
        func.count().filter(is_in("over_budget")),
        select(func.count(Agent.id)).where(of).scalar_subquery(),
    ).where(of, *conditions)
    return Totals(*db.session.execute(summed).one())


def is_in(state: State) -> ColumnElement[bool]:
    match state:
        case "over_budget":
            return Agent.over_budget & Agent.active
        case "running":
            return Agent.last_session_status.in_(LIVE)
        case "lost":
            return Agent.last_session_error_kind == WORKER_LOST
        case "never":
            return Agent.last_session_id.is_(None)
        case "paused":
            return Agent.paused.is_(True)
        case "inactive":
            return ~Agent.active
    return Agent.last_session_status == state


def in_order(order: Order) -> list[Any]:
    long_ago = func.coalesce(Agent.last_session_at, func.to_timestamp(0))
    by_name = func.lower(Agent.name).asc()
    by: dict[Order, list[Any]] = {
        "worst": [_urgency().asc(), by_name],
        "name": [by_name],
        "share": [Agent.budget_share.desc()],
        "tokens": [Agent.core_tokens.desc()],
        "last": [long_ago.desc()],
    }
    return [*by[order], Agent.id.asc()]


# -- agents that need a person -------------------------------------------------------------------

Kind = Literal[AttentionStatus, "over_budget"]
WORST_FIRST: tuple[Kind, ...] = ("failed", "rolled_back", "over_budget", "declined")
_SHOWN = 5


class Case(NamedTuple):
    """An agent that needs attention. ``number`` agents need it for the same reason; ``same_cause``
    of them failed with the same kind of error. Acknowledged sessions do not count. ``stuck``: of an
    agent over its budget, if its last sessions had no effect.
    """

    kind: Kind
    number: int
    same_cause: int
    agent: Agent
    session: RefinementSession | None
    stuck: Stuck | None = None

    @property
    def is_about_budget(self) -> bool:
        return self.kind == "over_budget"


def cases(account_id: int | None) -> dict[Kind, list[Case]]:
    """Return the worst cases of each kind: furthest over budget, or latest session."""
    of = true() if account_id is None else Agent.account_id == account_id
    found: dict[Kind, list[Case]] = {
        kind: [Case(kind, *row) for row in db.session.execute(_worst(kind, of))]
        for kind in get_args(Kind)
    }
    over_budget = found["over_budget"]
    stuck = stuck_above_budget([case.agent.id for case in over_budget])
    found["over_budget"] = [case._replace(stuck=stuck.get(case.agent.id)) for case in over_budget]
    return found


def number_of_cases(account_id: int | None) -> int:
    """Count the agents that need attention, once for each reason."""
    kinds = [_needs_it(kind) for kind in get_args(Kind)]
    counts = select(*(func.count().filter(needs_it) for needs_it in kinds)).where(or_(*kinds))
    if account_id is not None:
        counts = counts.where(Agent.account_id == account_id)
    return sum(db.session.execute(counts).one())


def _urgency() -> ColumnElement[int]:
    """Return the place of an agent's worst reason to need attention; the others are last."""
    places = enumerate(WORST_FIRST)
    return sql_case(*((_needs_it(kind), place) for place, kind in places), else_=len(WORST_FIRST))


def _needs_it(kind: Kind) -> ColumnElement[bool]:
    if kind == "over_budget":
        return is_in(kind)
    # as ``needs_attention`` of the session, by the agent's row
    return is_in(kind) & Agent.last_session_seen_at.is_(None)


def _worst(kind: Kind, of: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    order: Any = Agent.budget_share.desc()
    error_kind: Any = null()
    if kind != "over_budget":
        order, error_kind = Agent.last_session_at.desc(), Agent.last_session_error_kind
    # an agent without an error has a cause of its own
    cause = (error_kind, sql_case((error_kind.is_(None), Agent.id)))
    counted = select(
        Agent.id,
        func.count().over().label("number"),
        func.count().over(partition_by=cause).label("same_cause"),
        func.row_number().over(partition_by=cause, order_by=(order, Agent.id)).label("place"),
    )
    found = counted.where(of, _needs_it(kind)).subquery()
    return (
        select(found.c.number, found.c.same_cause, Agent, RefinementSession)
        .join(found, found.c.id == Agent.id)
        .outerjoin(RefinementSession, RefinementSession.id == Agent.last_session_id)
        .where(found.c.place == 1)
        .options(joinedload(Agent.account, innerjoin=True))
        .order_by(order, Agent.id)
        .limit(_SHOWN)
    )
