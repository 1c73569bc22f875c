"""What agents used: runs, tokens and cost, by agent, model and month.

A run counts in the month in which it was requested, in the time zone of its account. Tokens and
cost are those of all kinds of runs.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    Date,
    DateTime,
    Numeric,
    Row,
    Select,
    SQLColumnExpression,
    Subquery,
    cast,
    func,
    literal,
    or_,
    select,
    true,
)

from refine.extensions import db
from refine.models.agent import Agent
from refine.models.columns import AccountId
from refine.models.people import Account
from refine.models.runs.spending import SUMMED, all_runs, counted, local_time
from refine.rules.forecast import first_of_month

_COUNTED = {"sessions": "session", "reflections": "reflection", "conversations": "extraction"}
# No clock is further from UTC, so other runs need not be read.
_FURTHEST_ZONE = timedelta(days=1)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class Used(NamedTuple):
    """Some runs, added up.

    ``cost_usd`` is without ``unpriced_calls``, whose cost is unknown.
    """

    sessions: int
    reflections: int
    conversations: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_usd: Decimal
    unpriced_calls: int

    @classmethod
    def of(cls, row: Row[*tuple[Any, ...]]) -> "Used":
        return cls(*(getattr(row, name) for name in cls._fields))

    @classmethod
    def total_of(cls, rows: Sequence[Row[*tuple[Any, ...]]]) -> "Used":
        """Return the total that each row of ``with_total`` has."""
        return cls(*(getattr(rows[0], f"total_{name}") for name in cls._fields)) if rows else _NONE


_NONE = Used(0, 0, 0, 0, 0, 0, Decimal(0), 0)
_TOTALS = {name: Numeric if name == "cost_usd" else BigInteger for name in Used._fields}


class Months(NamedTuple):
    """Whole months: from the first day of one to the first day of another, exclusive."""

    since: date
    until: date

    @classmethod
    def up_to(cls, month: date, number: int = 1) -> "Months":
        """Return so many months, this one the last."""
        return cls(first_of_month(month, 1 - number), first_of_month(month, 1))


def by_month(
    account: Account,
    agent_ids: Sequence[int],
    since: datetime | None = None,
    until: datetime | None = None,
) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return what each of these agents of the account used, month by month, as ``Used`` has it.

    Of the runs from ``since`` (inclusive) to ``until`` (exclusive).
    """
    runs = all_runs()
    month = func.to_char(_requested(runs), "YYYY-MM").label("month")
    summed = _summed(runs, month, Agent.id.label("agent_id"), Agent.name.label("agent"))
    mine = summed.where(
        Account.id == account.id,
        runs.c.agent_id.in_(agent_ids),
        runs.c.created_at >= (since or _FIRST),
        runs.c.created_at < (until or _LAST),
    )
    return db.session.execute(mine.group_by(month, Agent.id).order_by(month, Agent.id)).all()


def used_by_month(months: Months, account_id: AccountId) -> Select[*tuple[Any, ...]]:
    """Return a query for what all agents (of this account) used, for each of these months."""
    runs = all_runs()
    month = cast(func.date_trunc("month", _requested(runs)), Date).label("month")
    return _in_months(_summed(runs, month), runs, months, account_id).group_by(month)


def used_by_model(months: Months, account_id: AccountId) -> Select[*tuple[Any, ...]]:
    """Return a query for what runs with each model used in these months."""
    runs = all_runs()
    model_id = runs.c.model_id
    return _in_months(_summed(runs, model_id), runs, months, account_id).group_by(model_id)


def used_by_agent(months: Months, account_id: AccountId) -> Select[*tuple[Any, ...]]:
    """Return a query for what each agent (of this account) used in these months."""
    runs = all_runs()
    named = (
        Agent.id.label("agent_id"),
        Agent.name.label("agent"),
        Account.name.label("account"),
        Account.slug.label("account_slug"),
    )
    summed = _in_months(_summed(runs, *named), runs, months, account_id)
    return summed.group_by(Agent.id, Account.id)


def with_total(used: CTE) -> Select[*tuple[Any, ...]]:
    """Return a query for these rows, and in each the total of all: the runs are read once."""
    sums = (cast(func.sum(used.c[name]), _TOTALS[name]).label(f"total_{name}") for name in _TOTALS)
    total = select(*sums).subquery()
    return select(used, total).join_from(used, total, true())


def _summed(runs: Subquery, *grouped_by: SQLColumnExpression[Any]) -> Select[*tuple[Any, ...]]:
    return (
        select(
            *grouped_by,
            *(counted(runs, kind).label(name) for name, kind in _COUNTED.items()),
            *(func.sum(runs.c[name]).label(name) for name in SUMMED),
        )
        .select_from(runs)
        .join(Agent, Agent.id == runs.c.agent_id)
        .join(Account, Account.id == Agent.account_id)
    )


def _in_months(
    summed: Select[*tuple[Any, ...]], runs: Subquery, months: Months, account_id: AccountId
) -> Select[*tuple[Any, ...]]:
    at, requested = runs.c.created_at, _requested(runs)
    summed = summed.where(
        at >= _in_utc(months.since, -_FURTHEST_ZONE),
        at < _in_utc(months.until, _FURTHEST_ZONE),
        # by the account's clock: checked only near the ends, because the check is slow
        or_(at >= _in_utc(months.since, _FURTHEST_ZONE), requested >= months.since),
        or_(at < _in_utc(months.until, -_FURTHEST_ZONE), requested < months.until),
    )
    return summed if account_id is None else summed.where(Agent.account_id == account_id)


def _in_utc(day: date, shift: timedelta) -> ColumnElement[datetime]:
    """When the day begins in UTC, shifted.

    It stands in the statement, not beside it: how many rows are read decides how best to read them.
    """
    begins = datetime.combine(day, time(), UTC) + shift
    return literal(begins, DateTime(timezone=True), literal_execute=True)


def _requested(runs: Subquery) -> ColumnElement[datetime]:
    """When runs were requested, by the account's clock."""
    return local_time(Account.time_zone, runs.c.created_at)
