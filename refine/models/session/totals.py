"""Sums over many sessions: for pages and metrics."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple

from sqlalchemy import Date, Select, cast, func, select

from refine import clock
from refine.extensions import db
from refine.models.session.columns import ENDED, ROLLING_WINDOW, SessionColumns


class Sums(NamedTuple):
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


class Period(NamedTuple):
    """The sessions of some time, added up; tokens that were brought back do not count."""

    sessions: int
    removed_tokens: int
    failed: int
    lost: int
    declined: int


class Totals(SessionColumns):
    """What all sessions come to."""

    @classmethod
    def outcomes(cls, at: datetime | None = None) -> dict[str, int]:
        """Return how many sessions of the last 30 days there are in each status."""
        since = (at or clock.now()) - ROLLING_WINDOW
        counted = (
            select(cls.status, func.count()).where(cls.created_at > since).group_by(cls.status)
        )
        return dict(db.session.execute(counted).all())

    @classmethod
    def by_day(
        cls, account_ids: Select[int], zone: str, since: datetime
    ) -> dict[date, dict[str, int]]:
        """Return how many sessions of each status began on each local day since then."""
        day = cast(func.timezone(zone, cls.created_at), Date)
        counted = (
            select(day, cls.status, func.count())
            .where(cls.in_accounts(account_ids), cls.created_at >= since)
            .group_by(day, cls.status)
        )
        days: dict[date, dict[str, int]] = defaultdict(dict)
        for on, status, count in db.session.execute(counted):
            days[on][status] = count
        return days

    @classmethod
    def period(cls, account_ids: Select[int], since: datetime) -> "Period":
        """Return what the sessions of these accounts since then came to."""
        summed = select(
            func.count(),
            func.coalesce(func.sum(cls.removed_tokens).filter(cls.undone_at.is_(None)), 0),
            func.count().filter(cls.status == "failed"),
            func.count().filter(cls.error_kind == "worker_lost"),
            func.count().filter(cls.status == "declined"),
        ).where(cls.in_accounts(account_ids), cls.created_at >= since)
        return Period(*db.session.execute(summed).one())

    @classmethod
    def waiting(cls, account_ids: Select[int] | None = None) -> tuple[int, datetime | None]:
        """Return how many sessions (of these accounts) are queued, and since when the oldest is."""
        queued = select(func.count(), func.min(cls.created_at)).where(cls.status == "queued")
        if account_ids is not None:
            queued = queued.where(cls.in_accounts(account_ids))
        count, since = db.session.execute(queued).one()
        return count, since

    @classmethod
    def sums(cls) -> Sequence["Sums"]:
        """Return counts and sums of all that ended, by status, trigger and kind of error."""
        grouped = select(
            cls.status,
            cls.trigger,
            cls.error_kind,
            func.count(),
            func.sum(cls.prompt_tokens),
            func.sum(cls.cached_tokens),
            func.sum(cls.completion_tokens),
            func.sum(cls.removed_tokens),
            func.sum(cls.cost_usd),
        )
        grouped = grouped.where(cls.status.in_(ENDED))
        grouped = grouped.group_by(cls.status, cls.trigger, cls.error_kind)
        return [Sums(*row) for row in db.session.execute(grouped)]
