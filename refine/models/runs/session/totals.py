"""Sums over many sessions, for pages and metrics."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple

from sqlalchemy import Date, Select, cast, func, select

from refine.extensions import db
from refine.models.runs.run import WORKER_LOST
from refine.models.runs.session.session import RefinementSession
from refine.models.runs.session.state import ENDED

_Session = RefinementSession
_TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens", "removed_tokens")
_SUMMED = (*_TOKENS, "cost_usd", "unpriced_calls")


class SessionSums(NamedTuple):
    """Ended sessions of one status, trigger and kind of error, added up."""

    status: str
    trigger: str
    error_kind: str | None
    sessions: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    removed_tokens: int
    cost_usd: Decimal
    unpriced_calls: int


class PeriodTotals(NamedTuple):
    """The sessions of a period, added up; ``removed_tokens`` is without undone sessions."""

    sessions: int
    removed_tokens: int
    failed: int
    lost: int
    declined: int


def by_day(account_ids: Select[int], zone: str, since: datetime) -> dict[date, dict[str, int]]:
    """Return how many sessions of each status began on each local day since then."""
    day = cast(func.timezone(zone, _Session.created_at), Date)
    counted = (
        select(day, _Session.status, func.count())
        .where(_Session.in_accounts(account_ids), _Session.created_at >= since)
        .group_by(day, _Session.status)
    )
    days: dict[date, dict[str, int]] = defaultdict(dict)
    for on, status, count in db.session.execute(counted):
        days[on][status] = count
    return days


def period(account_ids: Select[int], since: datetime) -> PeriodTotals:
    """Return the totals of these accounts' sessions since then."""
    summed = select(
        func.count(),
        func.coalesce(func.sum(_Session.removed_tokens).filter(_Session.undone_at.is_(None)), 0),
        func.count().filter(_Session.status == "failed"),
        func.count().filter(_Session.error_kind == WORKER_LOST),
        func.count().filter(_Session.status == "declined"),
    ).where(_Session.in_accounts(account_ids), _Session.created_at >= since)
    return PeriodTotals(*db.session.execute(summed).one())


def waiting(account_ids: Select[int] | None = None) -> tuple[int, datetime | None]:
    """Return how many sessions (of these accounts) are queued, and since when the oldest is."""
    queued = select(func.count(), func.min(_Session.created_at)).where(_Session.is_waiting)
    if account_ids is not None:
        queued = queued.where(_Session.in_accounts(account_ids))
    count, since = db.session.execute(queued).one()
    return count, since


def sums() -> Sequence[SessionSums]:
    """Return counts and sums of all ended sessions, by status, trigger and kind of error."""
    keys = (_Session.status, _Session.trigger, _Session.error_kind)
    grouped = (
        select(
            *keys,
            func.count(),
            *(func.sum(getattr(_Session, name)) for name in _SUMMED),
        )
        .where(_Session.status.in_(ENDED))
        .group_by(*keys)
    )
    return [SessionSums(*row) for row in db.session.execute(grouped)]
