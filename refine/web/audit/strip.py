"""How many records each of the last days has."""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import NamedTuple

from flask import Flask, current_app
from sqlalchemy import Date, cast, func, select

from refine import clock
from refine.extensions import db
from refine.models import AuditLog
from refine.web import scope
from refine.web.audit.filters import AuditFilter
from refine.web.charts import DAYS_SHOWN

# How many records there were on days that are over, by day; for each account, filter and time zone.
_Counts = dict[tuple[object, ...], dict[date, int]]
_KEPT_COUNTS = "refine.audit.counts"
_MAX_KEPT_COUNTS = 1_000
# When all of a day's records are surely written: no transaction takes so long.
_IS_WRITTEN_AFTER = timedelta(hours=1)

# Every so many days the axis names one where there is little room.
_TICK_DAYS = 7


class DayBar(NamedTuple):
    """A day: how many records it has, also in percent of the most, and how the axis marks it."""

    day: date
    records: int
    percent: int
    begins_month: bool
    is_tick: bool

    @property
    def css_class(self) -> str:
        return " ".join(["month"] * self.begins_month + ["tick"] * self.is_tick)


class Strip(NamedTuple):
    """The last days, oldest first."""

    bars: Sequence[DayBar]

    @property
    def total(self) -> int:
        return sum(bar.records for bar in self.bars)

    @property
    def busiest(self) -> DayBar:
        """The day with the most records, the last such one."""
        return max(self.bars, key=lambda bar: (bar.records, bar.day))


def register(app: Flask) -> None:
    """Let the pages keep what they counted, as records never change."""
    app.extensions[_KEPT_COUNTS] = {}


def strip(chosen: AuditFilter) -> Strip:
    """Count the records of each recent day, whatever days are filtered."""
    today = clock.now().astimezone(scope.zone()).date()
    days = [today - timedelta(days=back) for back in reversed(range(DAYS_SHOWN))]
    counts = _counts(chosen, days)
    most = max(counts.values()) or 1
    return Strip(
        [
            DayBar(
                day,
                counts[day],
                percent=100 * counts[day] // most,
                begins_month=day.day == 1 or day == days[0],
                is_tick=(today - day).days % _TICK_DAYS == 0,
            )
            for day in days
        ]
    )


def _counts(chosen: AuditFilter, days: list[date]) -> dict[date, int]:
    """Count the records of each of these days; those of days that are over only once."""
    kept: _Counts = current_app.extensions[_KEPT_COUNTS]
    if len(kept) > _MAX_KEPT_COUNTS:
        kept.clear()
    is_kept = not chosen.has_few_records
    whose = (scope.account_id(), chosen.kind, chosen.action, chosen.who, scope.zone().key)
    known = kept.get(whose, {}) if is_kept else {}
    since = next((day for day in days if day not in known), days[-1])
    counted = _counted_since(chosen, since, days[-1])
    counts = {day: known[day] if day < since else counted.get(day, 0) for day in days}
    over = (clock.now() - _IS_WRITTEN_AFTER).astimezone(scope.zone()).date()
    if is_kept:  # a new one, because other threads may read the present one
        kept[whose] = {day: count for day, count in counts.items() if day < over}
    return counts


def _counted_since(chosen: AuditFilter, since: date, until: date) -> dict[date, int]:
    day_of_record = cast(func.timezone(scope.zone().key, AuditLog.created_at), Date)
    bounded = chosen._replace(since=since, until=until)
    records = bounded.records(select(day_of_record, func.count())).order_by(None)
    return dict(db.session.execute(records.group_by(day_of_record)).all())
