"""Many agents in one query, for lists and walls: found, sorted, counted."""

from collections import defaultdict
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, Select, case, func, select, true
from sqlalchemy.orm import contains_eager

from refine import clock
from refine.extensions import db
from refine.models.agent import Agent, eligibility
from refine.models.attention import by_account, is_over_budget, urgency
from refine.models.people import Account
from refine.models.runs.run import LIVE, WORKER_LOST
from refine.rules.causes import CAUSES, LEVELS, cause_in_words
from refine.rules.quantities import plural

STATES = {
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
    """Select these agents with their accounts, and when their next automatic sessions are."""
    next_session_at = case((eligibility.is_available(automatic=True), Account.next_due_at))
    found = select(Agent, next_session_at).join(Agent.account).where(*conditions)
    return found.options(contains_eager(Agent.account))


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


def is_in(state: str) -> ColumnElement[bool]:
    match state:
        case "over_budget":
            return is_over_budget()
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
    by_name = func.lower(Agent.name).asc()
    by: dict[Order, list[Any]] = {
        "worst": [urgency().asc(), by_name],
        "name": [by_name],
        "share": [Agent.budget_share.desc()],
        "tokens": [Agent.core_tokens.desc()],
        "last": [func.coalesce(Agent.last_session_at, func.to_timestamp(0)).desc()],
    }
    return [*by[order], Agent.id.asc()]


class Square(NamedTuple):
    name: str
    slug: str
    agents: int
    running: int
    needs: list[tuple[str, str]]

    @property
    def level(self) -> str:
        return self.needs[0][0] if self.needs else "ok"


def squares(account_id: int | None) -> list[Square]:
    """Return how each account (or this one) stands, worst first."""
    needs: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for id_, cause, number in by_account(account_id):
        level = CAUSES[cause.partition(":")[0]].level
        needs[id_].append((level, f"{plural(number, 'agent')} {cause_in_words(cause)}"))
    mine = true() if account_id is None else Account.id == account_id
    counts = func.count(Agent.id), func.count().filter(is_in("running"))
    is_late = Account.has_late_slot(clock.now())
    columns = Account.id, Account.name, Account.slug, is_late, *counts
    found = select(*columns).outerjoin(Agent).where(mine).group_by(Account.id)
    made = []
    for id_, name, slug, has_late_slot, agents, running in db.session.execute(found):
        late = [("bad", "a slot was missed")] if has_late_slot else []
        made.append(Square(name, slug, agents, running, late + needs[id_]))
    return sorted(made, key=lambda it: (LEVELS.index(it.level), -len(it.needs), it.name))
