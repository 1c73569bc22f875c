"""Sums over many sessions, for pages and metrics."""

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple

from sqlalchemy import Date, case, cast, func, select

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


class DayTotals(NamedTuple):
    """The sessions of one status that were requested on a day, added up.

    ``removed_tokens`` is without undone sessions.
    """

    day: date
    status: str
    sessions: int
    removed_tokens: int
    lost: int


def by_day(account_id: int | None, zone: str, since: datetime) -> list[DayTotals]:
    """Return the sessions (of this account) since then, by local day and status."""
    day = cast(func.timezone(zone, _Session.created_at), Date)
    counted = (
        select(
            day,
            _Session.status,
            func.count(),
            func.sum(case((_Session.undone_at.is_(None), _Session.removed_tokens), else_=0)),
            func.count().filter(_Session.error_kind == WORKER_LOST),
        )
        .where(_Session.in_account(account_id), _Session.created_at >= since)
        .group_by(day, _Session.status)
    )
    return [DayTotals(*row) for row in db.session.execute(counted)]


def waiting(account_id: int | None = None) -> tuple[int, datetime | None]:
    """Return how many sessions (of this account) are queued, and since when the oldest is."""
    queued = select(func.count(), func.min(_Session.created_at)).where(
        _Session.is_waiting, _Session.in_account(account_id)
    )
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
