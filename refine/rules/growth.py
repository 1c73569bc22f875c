"""How fast a ledger grows."""

from dataclasses import dataclass
from datetime import datetime, timedelta

_WEEK = timedelta(days=7)
# A shorter time shows no pace.
_LEAST = timedelta(days=3)


@dataclass(frozen=True)
class Growth:
    """The token mass at two instants, and what sessions removed in between, without undone ones."""

    since: datetime
    until: datetime
    tokens_before: int
    tokens: int
    removed_tokens: int
    budget: int

    @property
    def is_known(self) -> bool:
        return self.until - self.since >= _LEAST

    @property
    def saved_a_week(self) -> int:
        """Return all other changes: saves, imports and promotions, less what people discarded."""
        return self._a_week(self.tokens - self.tokens_before + self.removed_tokens)

    @property
    def removed_a_week(self) -> int:
        return self._a_week(self.removed_tokens)

    @property
    def over_tokens(self) -> int:
        return max(self.tokens - self.budget, 0)

    def _a_week(self, tokens: int) -> int:
        return round(tokens * (_WEEK / (self.until - self.since)))
