"""What agents cost: the calls of their models in all kinds of runs, added up in one place."""

from collections.abc import Collection, Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Date,
    Integer,
    Row,
    Select,
    Subquery,
    Text,
    and_,
    bindparam,
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
from refine.extensions import Base, Instant, UtcDateTime, db, instant
from refine.extensions.statements import PlainQuery, plain_query
from refine.models.agent import Agent
from refine.models.people import Account
from refine.rules.model_names import VARIANT
from refine.rules.prices import ANY_MODEL, Price
from refine.settings import Settings

# By name, because the models of these tables import this module.
_SESSIONS, _TASKS, _GRANTS = "refinement_sessions", "memory_tasks", "access_grants"
SUMMED = ("prompt_tokens", "cached_tokens", "completion_tokens", "cost_usd", "unpriced_calls")
# No month is longer in any time zone, so older runs need not be read.
_LONGEST_MONTH = timedelta(days=32)


class DaySpending(NamedTuple):
    """The memory tasks that were requested on a day, and what all runs of that day cost.

    ``unpriced_calls`` are the calls whose cost is unknown, and not part of ``cost_usd``.
    """

    day: date
    reflections: int
    conversations: int
    cost_usd: Decimal
    unpriced_calls: int


class MonthSoFar(NamedTuple):
    """What an account's runs cost this month so far, and lately, as its cost cap counts it.

    ``is_unknown``: the cost is partly unknown; only the known part is included.
    """

    account: str
    slug: str
    time_zone: str
    cap_usd: Decimal | None
    spent_usd: Decimal
    lately_usd: Decimal
    is_unknown: bool


class CostCaps:
    """Why cost caps forbid automatic runs at one moment; read once for each account."""

    def __init__(self, at: datetime) -> None:
        self._at = at
        self._reasons: dict[int, str | None] = {}

    def look_up(self, accounts: Iterable[Account]) -> None:
        """Read what is not known yet of these accounts, in one statement for all."""
        new = [each for each in accounts if each.id not in self._reasons]
        caps = {each.id: cap for each in new if (cap := each.monthly_cost_cap_usd) is not None}
        reasons: dict[int, str | None] = dict.fromkeys(each.id for each in new)
        for id_, usd, is_unknown in _spent_in_month(list(caps), self._at) if caps else ():
            if (is_reached := usd >= caps[id_]) or is_unknown:
                reasons[id_] = f"the account's {cap_in_words(caps[id_], is_reached=is_reached)}"
        self._reasons |= reasons

    def reason(self, account: Account) -> str | None:
        """Return why the account's cost cap forbids automatic runs; None if it does not.

        A cap that cannot be checked, because the cost of a run of this month is unknown,
        forbids them too.
        """
        self.look_up([account])
        return self._reasons[account.id]


def _spent_in_month(
    account_ids: Collection[int], at: datetime
) -> Sequence[Row[int, Decimal, bool]]:
    """What each of these accounts spent this month, and whether the cost of a run is unknown."""
    summed = select(Account.id, spent_usd_of_month(at), has_unpriced_runs_in_month(at))
    return db.session.execute(summed.where(Account.id.in_(account_ids))).all()


def cost_cap_reason(account: Account, at: datetime) -> str | None:
    """Return why the account's cost cap forbids automatic runs at ``at``; None if it does not."""
    return CostCaps(at).reason(account)


def cap_in_words(cap_usd: Decimal, *, is_reached: bool) -> str:
    """Return the problem with a cost cap: it is reached, or cannot be checked."""
    cap = f"monthly cost cap of ${cap_usd}"
    if is_reached:
        return f"{cap} is reached"
    return (
        f"{cap} cannot be checked, because the cost of some runs is unknown: set prices in "
        "REFINE_PRICES, or remove the cap"
    )


def cost_cap_reached(at: datetime) -> ColumnElement[bool]:
    """Return the SQL condition that the account's cost cap forbids automatic runs."""
    is_unknown = and_(Account.monthly_cost_cap_usd.is_not(None), has_unpriced_runs_in_month(at))
    return or_(cap_is_spent(at), is_unknown)


def cap_is_spent(at: datetime) -> ColumnElement[bool]:
    """Return the SQL condition that this month's runs cost as much as the account's cap."""
    return spent_usd_of_month(at) >= Account.monthly_cost_cap_usd


def spent_usd_of_month(at: datetime) -> ColumnElement[Decimal]:
    """Return, as a column, what the account's agents cost this month, in the account's time zone.

    If the cost of a run is partly unknown, only the known part is included.
    """
    runs = all_runs()
    usd = func.coalesce(_known_usd(runs), runs.c.cost_usd)
    return _of_month(runs, func.coalesce(func.sum(usd), 0), at)


def has_unpriced_runs_in_month(at: datetime) -> ColumnElement[bool]:
    """Return the SQL condition that the account has a run this month whose cost is unknown."""
    runs = all_runs()
    return _of_month(runs, func.coalesce(func.bool_or(_known_usd(runs).is_(None)), False), at)


def month_so_far(account: Account, at: datetime, lately: timedelta) -> MonthSoFar:
    """Return what the account's runs cost this month, and from ``lately`` before ``at`` on."""
    found = _month_so_far(settings.current())
    values = {"at": at, "lately_from": at - lately, "account_id": account.id}
    return MonthSoFar(*found.rows(**values)[0])


def months_nearest_caps(at: datetime, lately: timedelta, limit: int) -> list[MonthSoFar]:
    """Return ``month_so_far`` of the accounts that used the most of their cost cap."""
    found = _months_nearest_caps(settings.current())
    return [MonthSoFar(*row) for row in found.rows(at=at, lately_from=at - lately, limit=limit)]


@lru_cache(maxsize=1)
def _month_so_far(_prices: Settings) -> PlainQuery:
    return PlainQuery(_months_so_far().where(Account.id == bindparam("account_id")))


@lru_cache(maxsize=1)
def _months_nearest_caps(_prices: Settings) -> PlainQuery:
    months = _months_so_far()
    share = months.selected_columns.spent_usd / func.nullif(Account.monthly_cost_cap_usd, 0)
    capped = months.where(Account.monthly_cost_cap_usd.is_not(None))
    worst = capped.order_by(share.desc().nulls_first(), Account.id)
    return PlainQuery(worst.limit(bindparam("limit", type_=Integer)))


def _months_so_far() -> Select[*tuple[Any, ...]]:
    """Return the query for the months of accounts; it holds the prices of the settings."""
    runs, at = all_runs(), instant("at")
    known_usd = _known_usd(runs)
    usd = func.coalesce(known_usd, runs.c.cost_usd)
    is_of_month = _is_of_month(runs, at)
    is_late = runs.c.created_at > instant("lately_from")
    summed = (
        select(
            func.coalesce(func.sum(usd).filter(is_of_month), 0).label("spent_usd"),
            func.coalesce(func.sum(usd).filter(is_late), 0).label("lately_usd"),
            func.coalesce(func.bool_or(known_usd.is_(None)).filter(is_of_month), false()).label(
                "is_unknown"
            ),
        )
        .join(Agent, Agent.id == runs.c.agent_id)
        .where(Agent.account_id == Account.id, runs.c.created_at > at - _LONGEST_MONTH)
        .correlate(Account)
        .lateral()
    )
    named = (Account.name, Account.slug, Account.time_zone, Account.monthly_cost_cap_usd)
    return select(*named, *summed.c).select_from(Account).join(summed, true())


def _of_month(runs: Subquery, summed: ColumnElement[Any], at: datetime) -> ColumnElement[Any]:
    """Return what is summed over the account's runs of this month."""
    return (
        select(summed)
        .join(Agent, Agent.id == runs.c.agent_id)
        .where(
            Agent.account_id == Account.id,
            runs.c.created_at > at - _LONGEST_MONTH,
            _is_of_month(runs, at),
        )
        .correlate(Account)
        .scalar_subquery()
    )


def _is_of_month(runs: Subquery, at: Instant) -> ColumnElement[bool]:
    """Return the SQL condition that the account's month has begun when a run was requested."""
    now = literal(at, UtcDateTime()) if isinstance(at, datetime) else at
    began_at = func.date_trunc("month", local_time(Account.time_zone, now))
    # by local time: a midnight that comes twice counts from the first one
    return local_time(Account.time_zone, runs.c.created_at) >= began_at


def by_day(account_id: int | None, zone: str, since: datetime) -> list[DaySpending]:
    """Return what the agents (of this account) cost since then, by local day."""
    summed = _by_day(is_of_account=account_id is not None)
    rows = summed.rows(account_id=account_id, zone=zone, since=since)
    return [DaySpending(*row) for row in rows]


@plain_query
def _by_day(*, is_of_account: bool) -> Select[*tuple[Any, ...]]:
    runs = all_runs()
    day = cast(local_time(bindparam("zone", type_=Text), runs.c.created_at), Date)
    theirs = select(Agent.id).where(Agent.account_id == bindparam("account_id"))
    summed = select(
        day,
        counted(runs, "reflection"),
        counted(runs, "extraction"),
        func.sum(runs.c.cost_usd),
        func.sum(runs.c.unpriced_calls),
    ).where(
        runs.c.created_at >= instant("since"),
        runs.c.agent_id.in_(theirs) if is_of_account else true(),
    )
    return summed.group_by(day)


def spent_by_agents(at: datetime, *conditions: ColumnElement[bool]) -> tuple[Decimal, bool]:
    """Return what the agents that meet the conditions cost this month, in their accounts' zones.

    And whether the cost is partly unknown; only the known part is included.
    """
    summed = _spent_this_month(settings.current()).where(*conditions)
    usd, is_unknown = db.session.execute(summed, {"at": at}).one()
    return Decimal(usd), is_unknown


@lru_cache(maxsize=1)
def _spent_this_month(_prices: Settings) -> Select[*tuple[Any, ...]]:
    runs, at = all_runs(), instant("at")
    known_usd = _known_usd(runs)
    return (
        select(
            func.coalesce(func.sum(func.coalesce(known_usd, runs.c.cost_usd)), 0),
            func.coalesce(func.bool_or(known_usd.is_(None)), false()),
        )
        .join(Agent, Agent.id == runs.c.agent_id)
        .join(Account, Account.id == Agent.account_id)
        .where(runs.c.created_at > at - _LONGEST_MONTH, _is_of_month(runs, at))
    )


def all_runs() -> Subquery:
    """All runs of every kind."""
    sessions, tasks, grants = (
        Base.metadata.tables[name].c for name in (_SESSIONS, _TASKS, _GRANTS)
    )
    names = ("agent_id", "created_at", "model_id", *SUMMED)
    return union_all(
        select(literal_column("'session'", Text).label("kind"), *(sessions[n] for n in names)),
        select(tasks.kind, *(tasks[n] for n in names)),
        select(literal_column("'access'", Text), *(grants[n] for n in names)),
    ).subquery("runs")


def _known_usd(runs: Subquery) -> ColumnElement[Decimal]:
    """Return what a run cost at most; NULL if calls were unpriced and nobody named a price since.

    Prices that were named since then count, so that a cap can be checked again. They are applied to
    all tokens, because the run does not store which tokens its known cost covers.
    """
    prices = settings.current().prices
    estimated = {model_id: _estimated_usd(runs, price) for model_id, price in prices.items()}
    otherwise: Any = estimated.pop(ANY_MODEL, null())
    name = _name_in_prices(runs, list(estimated))
    by_model = case(estimated, value=name, else_=otherwise) if estimated else otherwise
    return case(
        (runs.c.unpriced_calls == 0, runs.c.cost_usd),
        # a run without counted tokens cannot be estimated
        (runs.c.prompt_tokens > 0, runs.c.cost_usd + by_model),
    )


def _name_in_prices(runs: Subquery, names: list[str]) -> ColumnElement[str]:
    """Return under which name ``price_of`` (``rules/prices.py``) looks up the price of a model."""
    bare = func.regexp_replace(runs.c.model_id, VARIANT, "")
    return case((runs.c.model_id.in_(names), runs.c.model_id), else_=bare)


def _estimated_usd(runs: Subquery, price: Price) -> ColumnElement[Decimal]:
    cached = func.least(runs.c.cached_tokens, runs.c.prompt_tokens)
    return (
        (runs.c.prompt_tokens - cached) * literal(price.prompt)
        + cached * literal(price.cached)
        + runs.c.completion_tokens * literal(price.completion)
    )


def counted(runs: Subquery, kind: str) -> ColumnElement[int]:
    """Return how many of the runs are of this kind."""
    return func.count().filter(runs.c.kind == kind)


def local_time(zone: object, instant: ColumnElement[datetime]) -> ColumnElement[datetime]:
    """Return an instant as clocks in the time zone showed it."""
    return func.timezone(zone, instant)
