"""Usage and cost of all runs; a run counts in its account's month of request."""

from collections.abc import Iterable, Sequence
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
    Text,
    and_,
    case,
    cast,
    false,
    func,
    literal,
    literal_column,
    null,
    or_,
    select,
    true,
    union_all,
)

from refine import settings
from refine.extensions import Base, UtcDateTime, db
from refine.models.agent import Agent
from refine.models.columns import AccountId
from refine.models.people import Account
from refine.rules.model_names import VARIANT
from refine.rules.prices import ANY_MODEL, Price

_KINDS = {"sessions": "session", "reflections": "reflection", "conversations": "extraction"}
SUMMED = ("prompt_tokens", "cached_tokens", "completion_tokens", "cost_usd", "unpriced_calls")
# The part of them that second readings took: only sessions have some.
_READINGS = ("reading_prompt_tokens", "reading_completion_tokens", "reading_cost_usd")
_OF_SESSIONS = (*_READINGS, "saved_tokens")
# No month is longer in any time zone, so older runs need not be read.
_LONGEST_MONTH = timedelta(days=32)
# No clock is further from UTC, so other runs need not be read.
_FURTHEST_ZONE = timedelta(days=1)
# All days of which there may be usage.
_EVER = date(2000, 1, 1), date(9000, 1, 1)

_Rows = Select[*tuple[Any, ...]]


class Used(NamedTuple):
    """Runs, added up; ``cost_usd`` is without ``unpriced_calls``."""

    sessions: int
    reflections: int
    conversations: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_usd: Decimal
    unpriced_calls: int
    saved_tokens: int

    @classmethod
    def of(cls, row: Row[*tuple[Any, ...]], prefix: str = "") -> "Used":
        return cls(*(getattr(row, prefix + name) for name in cls._fields))

    @classmethod
    def total_of(cls, rows: Sequence[Row[*tuple[Any, ...]]]) -> "Used":
        return cls.of(rows[0], "total_") if rows else cls(0, 0, 0, 0, 0, 0, Decimal(0), 0, 0)


# -- the cost cap ---------------------------------------------------------------------------------


class CostCaps:
    """Why cost caps forbid automatic runs at one moment; read once for each account."""

    def __init__(self, at: datetime) -> None:
        self._at = at
        self._reasons: dict[int, str | None] = {}

    def look_up(self, accounts: Iterable[Account]) -> None:
        new = [each for each in accounts if each.id not in self._reasons]
        self._reasons |= dict.fromkeys(each.id for each in new)
        capped = [each.id for each in new if each.monthly_cost_cap_usd is not None]
        reached = accounts_at_cap(self._at).where(Account.id.in_(capped))
        for account, is_spent in db.session.execute(reached) if capped else ():
            cap = cap_in_words(account.monthly_cost_cap_usd, is_reached=is_spent)
            self._reasons[account.id] = f"the account's {cap}"

    def reason(self, account: Account) -> str | None:
        """Return why the cap forbids automatic runs: it is reached, or a cost is unknown."""
        self.look_up([account])
        return self._reasons[account.id]


def accounts_at_cap(at: datetime) -> Select[Account, bool]:
    """Return a query for the accounts whose cap forbids automatic runs, and whether it is spent."""
    month = _month(at)
    is_spent = (month.c.spent_usd >= Account.monthly_cost_cap_usd).label("is_spent")
    return (
        select(Account, is_spent)
        .join(month, true())
        .where(Account.monthly_cost_cap_usd.is_not(None), or_(is_spent, month.c.is_unknown))
    )


def cap_in_words(cap_usd: Decimal | None, *, is_reached: bool) -> str:
    cap = f"monthly cost cap of ${cap_usd}"
    if is_reached:
        return f"{cap} is reached"
    return (
        f"{cap} cannot be checked, because the cost of some runs is unknown: set prices in "
        "REFINE_PRICES, or remove the cap"
    )


# -- the month so far -----------------------------------------------------------------------------


def spent_by_agents(at: datetime, *conditions: ColumnElement[bool]) -> tuple[Decimal, bool]:
    """Return this month's known cost in the accounts' zones, and whether more is unknown."""
    summed = _summed_month(at).join(Account, Account.id == Agent.account_id).where(*conditions)
    usd, is_unknown = db.session.execute(summed).one()
    return Decimal(usd), is_unknown


def _month(at: datetime) -> Any:
    summed = _summed_month(at).where(Agent.account_id == Account.id)
    return summed.correlate(Account).lateral()


def _summed_month(at: datetime) -> _Rows:
    runs = all_runs()
    known_usd = _known_usd(runs)
    usd = func.coalesce(known_usd, runs.c.cost_usd)
    began_at = func.date_trunc(
        "month", func.timezone(Account.time_zone, literal(at, UtcDateTime()))
    )
    # by local time: a midnight that comes twice counts from the first one
    is_of_month = _requested(runs) >= began_at
    is_unknown = func.bool_or(known_usd.is_(None)).filter(is_of_month)
    return (
        select(
            func.coalesce(func.sum(usd).filter(is_of_month), 0).label("spent_usd"),
            func.coalesce(is_unknown, false()).label("is_unknown"),
        )
        .select_from(runs)
        .join(Agent, Agent.id == runs.c.agent_id)
        .where(runs.c.created_at > at - _LONGEST_MONTH)
    )


# -- usage ----------------------------------------------------------------------------------------


def used_by(what: str, since: date | None, until: date | None, account_id: AccountId) -> _Rows:
    """Select usage by ``agent``, ``model``, ``month`` or ``agent and month``, from a first day
    (inclusive) to a last (exclusive), in the accounts' zones.
    """
    runs, (first, last) = all_runs(), _EVER
    since, until = max(first, since or first), min(last, until or last)
    month = cast(func.date_trunc("month", _requested(runs)), Date).label("month")
    agent: list[SQLColumnExpression[Any]] = [
        Agent.id.label("agent_id"),
        Agent.name.label("agent"),
        Account.name.label("account"),
        Account.slug.label("account_slug"),
    ]
    keys: dict[str, list[SQLColumnExpression[Any]]] = {
        "agent": agent,
        "model": [runs.c.model_id],
        "month": [month],
        "agent and month": [*agent, month],
    }
    at, requested = runs.c.created_at, _requested(runs)
    summed = _summed(runs, *keys[what]).where(
        at >= _in_utc(since, -_FURTHEST_ZONE),
        at < _in_utc(until, _FURTHEST_ZONE),
        # by the account's clock: checked only near the ends, because the check is slow
        or_(at >= _in_utc(since, _FURTHEST_ZONE), requested >= since),
        or_(at < _in_utc(until, -_FURTHEST_ZONE), requested < until),
    )
    mine = true() if account_id is None else Agent.account_id == account_id
    return summed.where(mine).group_by(*keys[what])


def with_total(used: CTE) -> _Rows:
    """Return a query for these rows, and in each the total of all: the runs are read once."""
    totals = (
        cast(func.sum(used.c[name]).over(), Numeric if name == "cost_usd" else BigInteger).label(
            f"total_{name}"
        )
        for name in Used._fields
    )
    return select(used, *totals)


def _summed(runs: Subquery, *keys: SQLColumnExpression[Any]) -> _Rows:
    return (
        select(
            *keys,
            *(_counted(runs, kind).label(name) for name, kind in _KINDS.items()),
            *(func.sum(runs.c[name]).label(name) for name in (*SUMMED, *_OF_SESSIONS)),
        )
        .select_from(runs)
        .join(Agent, Agent.id == runs.c.agent_id)
        .join(Account, Account.id == Agent.account_id)
    )


def _in_utc(day: date, shift: timedelta) -> ColumnElement[datetime]:
    """Return the day's beginning as SQL text, so that the planner sees how many rows are read."""
    begins = datetime.combine(day, time(), UTC) + shift
    return literal(begins, DateTime(timezone=True), literal_execute=True)


def _requested(runs: Subquery) -> ColumnElement[datetime]:
    return func.timezone(Account.time_zone, runs.c.created_at)


# -- runs -----------------------------------------------------------------------------------------


def all_runs() -> Subquery:
    """All runs of every kind; by the names of tables, whose models import this module."""
    sessions, tasks, grants = (
        Base.metadata.tables[name].c
        for name in ("refinement_sessions", "memory_tasks", "access_grants")
    )
    names = ("agent_id", "created_at", "model_id", *SUMMED)
    kind = literal_column("'session'", Text).label("kind")
    none = [literal_column("0", sessions[n].type) for n in _OF_SESSIONS]
    return union_all(
        select(kind, *(sessions[n] for n in (*names, *_READINGS)), saved_by(sessions)),
        select(tasks.kind, *(tasks[n] for n in names), *none),
        select(literal_column("'access'", Text), *(grants[n] for n in names), *none),
    ).subquery("runs")


def saved_by(sessions: Any) -> ColumnElement[int]:
    """Return how many tokens ended sessions took out of every prompt: 0 if one was undone."""
    is_kept = and_(sessions.ended_at.is_not(None), sessions.undone_at.is_(None))
    saved = case((is_kept, sessions.saved_tokens), else_=0)
    return saved.label("saved_tokens")


def _known_usd(runs: Subquery) -> ColumnElement[Decimal]:
    """Return the highest cost of a run, by prices named since, too; NULL if still unpriced."""
    prices = settings.current().prices
    estimated = {model_id: _estimated_usd(runs, price) for model_id, price in prices.items()}
    otherwise: Any = estimated.pop(ANY_MODEL, null())
    # as ``price_of`` (``rules/prices.py``) looks up the price of a model
    bare = func.regexp_replace(runs.c.model_id, VARIANT, "")
    name = case((runs.c.model_id.in_(estimated), runs.c.model_id), else_=bare)
    by_model = case(estimated, value=name, else_=otherwise) if estimated else otherwise
    return case(
        (runs.c.unpriced_calls == 0, runs.c.cost_usd),
        # a run without counted tokens cannot be estimated
        (runs.c.prompt_tokens > 0, runs.c.cost_usd + by_model),
    )


def _estimated_usd(runs: Subquery, price: Price) -> ColumnElement[Decimal]:
    cached = func.least(runs.c.cached_tokens, runs.c.prompt_tokens)
    return (
        (runs.c.prompt_tokens - cached) * literal(price.prompt)
        + cached * literal(price.cached)
        + runs.c.completion_tokens * literal(price.completion)
    )


def _counted(runs: Subquery, kind: str) -> ColumnElement[int]:
    return func.count().filter(runs.c.kind == kind)
