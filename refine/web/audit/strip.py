"""How many records each of the last days has."""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import NamedTuple

from sqlalchemy import Date, cast, func, select

from refine import clock
from refine.extensions import db
from refine.models import AuditLog
from refine.web import scope
from refine.web.audit.filters import visible_records
from refine.web.charts import DAYS_SHOWN
from refine.web.forms import midnight
from refine.web.lists import Chosen

# Every so many days the axis names one where there is little room.
_TICK_DAYS = 7


class DayBar(NamedTuple):
    """A day: how many records it has, its bar in a height of 100, and how the axis marks it."""

    day: date
    records: int
    height: int
    top: int
    begins_month: bool
    is_tick: bool


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


def strip(chosen: Chosen) -> Strip:
    """Count the chosen records of each recent day, whatever days are chosen."""
    today = clock.now().astimezone(scope.zone()).date()
    days = [today - timedelta(days=back) for back in reversed(range(DAYS_SHOWN))]
    counts = _counts_since(chosen, days[0])
    most = max(counts.values(), default=0) or 1
    return Strip(
        [
            DayBar(
                day,
                counts.get(day, 0),
                height=(height := 100 * counts.get(day, 0) // most),
                top=100 - height,
                begins_month=day.day == 1 or day == days[0],
                is_tick=(today - day).days % _TICK_DAYS == 0,
            )
            for day in days
        ]
    )


def _counts_since(chosen: Chosen, since: date) -> dict[date, int]:
    on = cast(func.timezone(scope.zone().key, AuditLog.created_at), Date)
    records = visible_records(chosen, select(on, func.count()), without=("since", "until"))
    lately = records.where(AuditLog.created_at >= midnight(since)).order_by(None).group_by(on)
    return dict(db.session.execute(lately).all())
