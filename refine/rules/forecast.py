"""Months, what one will cost, and how fast a ledger grows."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal

# Seven days have each weekday once, and so the weekly sessions once, wherever the month stands.
PACE_SPAN = timedelta(days=7)
# Less tells nothing of a pace.
_LEAST = timedelta(days=3)
# Nobody knows what will be later.
_FORESEEN = timedelta(days=730)


def first_of_month(day: date, months_later: int = 0) -> date:
    """Return the first day of a day's month, or of one that many months later (below 0: before)."""
    years, month = divmod(day.month - 1 + months_later, 12)
    return date(day.year + years, month + 1, 1)


@dataclass(frozen=True)
class Growth:
    """The token mass at two instants, and what sessions removed in between, without undone ones.

    What else changed it counts as saved: imports and promotions too, less what people discarded.
    """

    since: datetime
    until: datetime
    tokens_before: int
    tokens: int
    removed_tokens: int
    budget: int

    @property
    def is_known(self) -> bool:
        """Whether the time is long enough to tell a pace."""
        return self.until - self.since >= _LEAST

    @property
    def saved_a_week(self) -> int:
        """What was added otherwise than by sessions."""
        return self._a_week(self.tokens - self.tokens_before + self.removed_tokens)

    @property
    def removed_a_week(self) -> int:
        return self._a_week(self.removed_tokens)

    @property
    def over_tokens(self) -> int:
        """By how much the mass exceeds the budget already."""
        return max(self.tokens - self.budget, 0)

    @property
    def over_at(self) -> datetime | None:
        """When the mass will exceed the budget, if it keeps changing as fast as in this time.

        None if it does not grow, or not before two years have passed, or has exceeded it already.
        """
        gained = self.tokens - self.tokens_before
        if self.over_tokens or gained <= 0:
            return None
        left = (self.until - self.since) * ((self.budget + 1 - self.tokens) / gained)
        return self.until + left if left <= _FORESEEN else None

    def _a_week(self, tokens: int) -> int:
        return round(tokens * (PACE_SPAN / (self.until - self.since)))


def month_end_usd(
    spent_usd: Decimal, lately_usd: Decimal, at: datetime, ends_at: datetime
) -> Decimal:
    """Return what a month that ends at ``ends_at`` will have cost, as estimated at ``at``.

    What was spent so far, and for the rest of the month the pace of ``PACE_SPAN``: what runs cost
    per day in the seven days before ``at`` (``lately_usd`` in all), even if the month is younger.
    """
    left = Decimal((ends_at - at).total_seconds()) / Decimal(PACE_SPAN.total_seconds())
    return spent_usd + lately_usd * left
