"""What sessions did and cost over the last months: sums, and bars for each day."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property
from typing import NamedTuple

from refine import clock
from refine.models.runs import spending
from refine.models.runs.session import totals
from refine.models.runs.session.totals import DayTotals
from refine.models.runs.spending import DaySpending
from refine.web import scope
from refine.web.charts import AMOUNT, Amounts, Bar, day_bars
from refine.web.forms import midnight

DAYS = 90


class Spent(NamedTuple):
    """What ``DaySpending`` says of each day, added up."""

    reflections: int
    conversations: int
    cost_usd: Decimal
    unpriced_calls: int


@dataclass(frozen=True)
class Trend:
    """The last ``DAYS`` days of the page's accounts, up to today, in the page's time zone."""

    today: date
    sessions: list[DayTotals]
    spending: list[DaySpending]

    @classmethod
    def of_page(cls) -> "Trend":
        """Read it, in two statements."""
        account_id, zone = scope.account_id(), scope.zone()
        today = clock.now().astimezone(zone).date()
        since = midnight(today - timedelta(days=DAYS - 1))
        return cls(
            today,
            totals.by_day(account_id, zone.key, since),
            spending.by_day(account_id, zone.key, since),
        )

    @property
    def days(self) -> int:
        return DAYS

    @property
    def first_day(self) -> date:
        return self.today - timedelta(days=DAYS - 1)

    @property
    def removed_tokens(self) -> int:
        return sum(each.removed_tokens for each in self.sessions)

    @property
    def lost(self) -> int:
        """How many sessions lost their worker."""
        return sum(each.lost for each in self.sessions)

    @cached_property
    def outcomes(self) -> Counter[str]:
        """How many sessions ended, or stand, in each way."""
        counts = Counter[str]()
        for each in self.sessions:
            counts[each.status] += each.sessions
        return counts

    @cached_property
    def spent(self) -> Spent:
        days = self.spending
        return Spent(
            reflections=sum(day.reflections for day in days),
            conversations=sum(day.conversations for day in days),
            cost_usd=sum((day.cost_usd for day in days), Decimal(0)),
            unpriced_calls=sum(day.unpriced_calls for day in days),
        )

    @property
    def session_bars(self) -> list[Bar]:
        by_status: dict[date, dict[str, Amounts]] = defaultdict(dict)
        for each in self.sessions:
            by_status[each.day][each.status] = each.sessions
        return day_bars(by_status, self.today, DAYS)

    @property
    def removed_bars(self) -> list[Bar]:
        return self._bars((each.day, each.removed_tokens) for each in self.sessions)

    @property
    def cost_bars(self) -> list[Bar]:
        return self._bars((each.day, each.cost_usd) for each in self.spending)

    def _bars(self, amounts: Iterable[tuple[date, Amounts]]) -> list[Bar]:
        by_day: dict[date, dict[str, Amounts]] = defaultdict(lambda: {AMOUNT: 0})
        for day, amount in amounts:
            by_day[day][AMOUNT] += amount
        return day_bars(by_day, self.today, DAYS)
