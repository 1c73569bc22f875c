"""What agents cost: by sessions, reflections and conversations, which are added up here alone."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from sqlalchemy import (
    ColumnElement,
    Select,
    Subquery,
    Text,
    func,
    literal,
    literal_column,
    select,
    union_all,
)

from refine.extensions import Base, UtcDateTime, db
from refine.models.account import Account
from refine.models.agent import Agent

# By name: the models of these tables look at the cap themselves.
_SESSIONS, _TASKS = "refinement_sessions", "memory_tasks"
_SUMMED = ("prompt_tokens", "cached_tokens", "completion_tokens", "cost_usd")
# No month of any zone is longer: what is older need not be looked at.
_LONGEST_MONTH = timedelta(days=32)


class MonthOfAgent(NamedTuple):
    """What one agent was asked for in one month, and what all of it came to."""

    month: str
    agent_id: int
    agent: str
    sessions: int
    reflections: int
    conversations: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_usd: Decimal


class Spent(NamedTuple):
    """What the agents of some accounts did between their sessions, and what all of it cost."""

    reflections: int
    conversations: int
    cost_usd: Decimal


def cost_usd_of_month(account: Account, at: datetime) -> Decimal:
    """Return what the account's agents cost since its month began, in its own time zone."""
    spent = select(spent_usd_of_month(at)).where(Account.id == account.id)
    return Decimal(db.session.scalars(spent).one())


def spent_usd_of_month(at: datetime) -> ColumnElement[Decimal]:
    """Return the same as a column, for a query over many accounts."""
    runs = _runs()
    began_at = func.date_trunc("month", _local(Account.time_zone, literal(at, UtcDateTime())))
    return (
        select(func.coalesce(func.sum(runs.c.cost_usd), 0))
        .join(Agent, Agent.id == runs.c.agent_id)
        .where(
            Agent.account_id == Account.id,
            runs.c.created_at > at - _LONGEST_MONTH,
            # by the clock on the wall: a midnight that comes twice is the first of the two
            _local(Account.time_zone, runs.c.created_at) >= began_at,
        )
        .correlate(Account)
        .scalar_subquery()
    )


def spent_since(account_ids: Select[int], since: datetime) -> Spent:
    """Return what the agents of these accounts cost since then."""
    runs = _runs()
    summed = (
        select(
            _counted(runs, "reflection"),
            _counted(runs, "extraction"),
            func.coalesce(func.sum(runs.c.cost_usd), 0),
        )
        .join(Agent, Agent.id == runs.c.agent_id)
        .where(Agent.account_id.in_(account_ids), runs.c.created_at >= since)
    )
    return Spent(*db.session.execute(summed).one())


def by_month(
    account: Account, since: datetime | None = None, until: datetime | None = None
) -> Sequence[MonthOfAgent]:
    """Return what each of the account's agents cost, month by month.

    By when it was asked for, from ``since`` to before ``until``; months are those of the account's
    time zone.
    """
    runs = _runs()
    month = func.to_char(_local(account.time_zone, runs.c.created_at), "YYYY-MM")
    summed = (
        select(
            month,
            Agent.id,
            Agent.name,
            *(_counted(runs, kind) for kind in ("session", "reflection", "extraction")),
            *(func.sum(runs.c[name]) for name in _SUMMED),
        )
        .join(Agent, Agent.id == runs.c.agent_id)
        .where(Agent.account_id == account.id)
        .group_by(month, Agent.id)
        .order_by(month, Agent.id)
    )
    if since is not None:
        summed = summed.where(runs.c.created_at >= since)
    if until is not None:
        summed = summed.where(runs.c.created_at < until)
    return [MonthOfAgent(*row) for row in db.session.execute(summed)]


def _runs() -> Subquery:
    """Everything that an agent's model was asked for on its own, of whatever kind."""
    sessions, tasks = (Base.metadata.tables[name].c for name in (_SESSIONS, _TASKS))
    names = ("agent_id", "created_at", *_SUMMED)
    return union_all(
        select(literal_column("'session'", Text).label("kind"), *(sessions[n] for n in names)),
        select(tasks.kind, *(tasks[n] for n in names)),
    ).subquery("runs")


def _counted(runs: Subquery, kind: str) -> ColumnElement[int]:
    return func.count().filter(runs.c.kind == kind)


def _local(zone: object, instant: ColumnElement[datetime]) -> ColumnElement[datetime]:
    return func.timezone(zone, instant)
