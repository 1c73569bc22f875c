"""Months, and how fast a ledger grows."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta

_WEEK = timedelta(days=7)
# Less tells nothing of a pace.
_LEAST = timedelta(days=3)


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

    def _a_week(self, tokens: int) -> int:
        return round(tokens * (_WEEK / (self.until - self.since)))
