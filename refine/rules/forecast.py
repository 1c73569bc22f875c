"""What a month will cost."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

# Seven days have each weekday once, and so the weekly sessions once, wherever the month stands.
PACE_SPAN = timedelta(days=7)


@dataclass(frozen=True)
class Forecast:
    """What a month that ends at ``ends_at`` will have cost, as estimated at ``at``.

    What was spent so far, and for the rest of the month the pace of ``PACE_SPAN``: what runs cost
    per day in the seven days before ``at`` (``lately_usd`` in all), even if the month is younger.
    """

    spent_usd: Decimal
    lately_usd: Decimal
    at: datetime
    ends_at: datetime

    @property
    def usd(self) -> Decimal:
        return self.spent_usd + self.lately_usd * _ratio(self.ends_at - self.at, PACE_SPAN)

    def reaches(self, cap_usd: Decimal) -> datetime | None:
        """Return when the cost will reach the cap; None if it has, or will not this month."""
        left = cap_usd - self.spent_usd
        if left <= 0 or self.usd < cap_usd:
            return None
        return self.at + float(left / self.lately_usd) * PACE_SPAN


def _ratio(span: timedelta, whole: timedelta) -> Decimal:
    return Decimal(span.total_seconds()) / Decimal(whole.total_seconds())
