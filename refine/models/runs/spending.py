"""What agents cost: the calls of their models in all kinds of runs, added up in one place."""

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
from refine.models.agent import Agent
from refine.models.people import Account

# By name, because the models of these tables import this module.
_SESSIONS, _TASKS, _GRANTS = "refinement_sessions", "memory_tasks", "access_grants"
_SUMMED = ("prompt_tokens", "cached_tokens", "completion_tokens", "cost_usd")
# No month is longer in any time zone, so older runs need not be read.
_LONGEST_MONTH = timedelta(days=32)


class AgentMonth(NamedTuple):
    """One agent's runs of one month, and what they cost."""

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


class PeriodSpending(NamedTuple):
    """The memory tasks of some accounts in a period, and what all their runs cost."""

    reflections: int
    conversations: int
    cost_usd: Decimal


def cost_cap_reason(account: Account, at: datetime) -> str | None:
    """Return why the account's cost cap forbids automatic runs; None if it does not."""
    cap = account.monthly_cost_cap_usd
    if cap is None or cost_usd_of_month(account, at) < cap:
        return None
    return f"the account's monthly cost cap of ${cap} is reached"


def cost_cap_reached(at: datetime) -> ColumnElement[bool]:
    """Return the SQL condition that the account's cost cap is reached."""
    return spent_usd_of_month(at) >= Account.monthly_cost_cap_usd


def cost_usd_of_month(account: Account, at: datetime) -> Decimal:
    """Return what the account's agents cost this month, in the account's time zone."""
    spent = select(spent_usd_of_month(at)).where(Account.id == account.id)
    return Decimal(db.session.scalars(spent).one())


def spent_usd_of_month(at: datetime) -> ColumnElement[Decimal]:
    """Return ``cost_usd_of_month`` as a column, for a query over many accounts."""
    runs = _runs()
    began_at = func.date_trunc("month", _local(Account.time_zone, literal(at, UtcDateTime())))
    return (
        select(func.coalesce(func.sum(runs.c.cost_usd), 0))
        .join(Agent, Agent.id == runs.c.agent_id)
        .where(
            Agent.account_id == Account.id,
            runs.c.created_at > at - _LONGEST_MONTH,
            # by local time: a midnight that comes twice counts from the first one
            _local(Account.time_zone, runs.c.created_at) >= began_at,
        )
        .correlate(Account)
        .scalar_subquery()
    )


def spent_since(account_ids: Select[int], since: datetime) -> PeriodSpending:
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
    return PeriodSpending(*db.session.execute(summed).one())


def by_month(
    account: Account, since: datetime | None = None, until: datetime | None = None
) -> Sequence[AgentMonth]:
    """Return what each of the account's agents cost, month by month.

    A run counts in the month in which it was requested, in the account's time zone: from ``since``
    (inclusive) to ``until`` (exclusive).
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
    return [AgentMonth(*row) for row in db.session.execute(summed)]


def _runs() -> Subquery:
    """All runs of every kind."""
    sessions, tasks, grants = (
        Base.metadata.tables[name].c for name in (_SESSIONS, _TASKS, _GRANTS)
    )
    names = ("agent_id", "created_at", *_SUMMED)
    return union_all(
        select(literal_column("'session'", Text).label("kind"), *(sessions[n] for n in names)),
        select(tasks.kind, *(tasks[n] for n in names)),
        select(literal_column("'access'", Text), *(grants[n] for n in names)),
    ).subquery("runs")


def _counted(runs: Subquery, kind: str) -> ColumnElement[int]:
    return func.count().filter(runs.c.kind == kind)


def _local(zone: object, instant: ColumnElement[datetime]) -> ColumnElement[datetime]:
    return func.timezone(zone, instant)
