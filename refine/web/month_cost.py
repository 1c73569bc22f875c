"""What this month costs: to date, projected to month end, and against the cap."""

from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property
from zoneinfo import ZoneInfo

from refine import clock
from refine.models import Account
from refine.models.runs.spending import (
    MonthSoFar,
    cap_in_words,
    month_so_far,
    months_nearest_caps,
)
from refine.rules.forecast import PACE_SPAN, Forecast, first_of_month
from refine.rules.quantities import cost_in_words, in_days
from refine.web import scope
from refine.web.formatting import day, month
from refine.web.presenting import NEARLY_FULL_PERCENT


@dataclass(frozen=True)
class MonthCost:
    """The present month of an account: what it cost, what it will cost, and the cost cap."""

    so_far: MonthSoFar
    at: datetime

    @property
    def month(self) -> date:
        """The month's first day."""
        return first_of_month(self.at.astimezone(self._zone).date())

    @property
    def spent(self) -> str:
        return cost_in_words(self.so_far.spent_usd, self.so_far.is_unknown)

    @property
    def told(self) -> str:
        """What was spent, where nothing before it says what it is."""
        if self.so_far.is_unknown and not self.so_far.spent_usd:
            return "cost unknown"
        return self.spent

    @property
    def of_cap(self) -> str:
        """Say, after ``told``, of what: only a cost that is known is set against the cap."""
        cap = "" if self.so_far.cap_usd is None else f"${self.so_far.cap_usd:,.2f}"
        if self.so_far.is_unknown:
            spent = " spent" if self.so_far.spent_usd else ""
            return f"{spent}; the cap is {cap}" if cap else spent
        share = "" if self.percent is None else f" ({self.percent}%)"
        return f" of {cap} spent{share}" if cap else " spent"

    @property
    def percent(self) -> int | None:
        """What share of the cap is spent; None if that is unknown, or without a cap above 0."""
        cap = None if self.so_far.is_unknown else self.so_far.cap_usd
        return round(100 * self.so_far.spent_usd / cap) if cap else None

    @property
    def is_reached(self) -> bool:
        return self.so_far.cap_usd is not None and self.so_far.spent_usd >= self.so_far.cap_usd

    @property
    def has_forecast(self) -> bool:
        """Whether all costs are known, and automatic runs go on."""
        return not (self.is_reached or self.so_far.is_unknown)

    @cached_property
    def forecast(self) -> Forecast:
        ends_at = datetime.combine(first_of_month(self.month, 1), time(), self._zone)
        return Forecast(self.so_far.spent_usd, self.so_far.lately_usd, self.at, ends_at)

    @property
    def reached_on(self) -> date | None:
        """The day on which the cost will reach the cap; None if it has, or will not this month."""
        if self.so_far.cap_usd is None or not self.has_forecast:
            return None
        reached_at = self.forecast.reaches(self.so_far.cap_usd)
        return None if reached_at is None else reached_at.astimezone(self._zone).date()

    @property
    def outlook(self) -> str:
        """Say what will be: at the month's end, or why nothing is started any more."""
        cap, until = self.so_far.cap_usd, day(first_of_month(self.month, 1))
        if cap is not None and not self.has_forecast:
            why = cap_in_words(cap, is_reached=self.is_reached)
            lasts = f" before {until}" if self.is_reached else " until then"
            return f"The {why}. Nothing starts automatically{lasts}."
        if self.so_far.is_unknown:
            prices = "set prices in REFINE_PRICES to get a forecast"
            return f"The cost of some runs is unknown: {prices}."
        if not self.so_far.lately_usd:
            quiet = f"The last {in_days(PACE_SPAN)} cost nothing"
            return f"{quiet}, so no further cost is expected this month."
        pace, in_all = f"At the pace of the last {in_days(PACE_SPAN)}", self._in_all
        if self.reached_on is not None:
            reached_on = day(self.reached_on)
            return f"{pace}, the cap is reached on {reached_on}; {in_all} without a cap."
        within = "" if cap is None else ", within the cap"
        return f"{pace}, {in_all} in total{within}."

    @property
    def _in_all(self) -> str:
        usd = cost_in_words(self.forecast.usd, 0)
        return f"{month(self.month)} would cost about {usd}"

    # -- the bar, 100 wide -----------------------------------------------------------------------

    @property
    def css_class(self) -> str:
        if self.is_reached:
            return "bad"
        cap, spent = self.so_far.cap_usd, self.so_far.spent_usd
        is_near = cap is not None and 100 * spent >= NEARLY_FULL_PERCENT * cap
        is_safe = self.has_forecast and not is_near and self.reached_on is None
        return "ok" if is_safe else "warn"

    @property
    def spent_width(self) -> float:
        return self._width(self.so_far.spent_usd)

    @property
    def forecast_width(self) -> float:
        return self._width(self.forecast.usd) if self.has_forecast else self.spent_width

    @property
    def cap_x(self) -> float | None:
        """Where the cap is marked; None without one, or where the bar ends with it."""
        cap = self.so_far.cap_usd
        return None if cap is None or cap == self._most else self._width(cap)

    def _width(self, usd: Decimal) -> float:
        return round(float(100 * usd / self._most), 3) if self._most else 0

    @cached_property
    def _most(self) -> Decimal:
        expected = self.forecast.usd if self.has_forecast else Decimal(0)
        return max(self.so_far.cap_usd or Decimal(0), self.so_far.spent_usd, expected)

    @property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.so_far.time_zone)


def of_account(account: Account) -> MonthCost:
    """Return what this month costs an account, whether it has a cap or not."""
    at = clock.now()
    return MonthCost(month_so_far(account, at, PACE_SPAN), at)


def of_page(most: int) -> list[MonthCost]:
    """Return what this month costs the page's account, or those that are nearest to their caps."""
    if not scope.sees_all_accounts():
        return [of_account(scope.account_to_change())]
    at = clock.now()
    return [MonthCost(each, at) for each in months_nearest_caps(at, PACE_SPAN, most)]
