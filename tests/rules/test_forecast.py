"""What a month will cost, and which month it is."""

from datetime import UTC, date, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from refine.rules.forecast import first_of_month, month_end_usd

NOON = datetime(2026, 3, 17, 12, tzinfo=UTC)
END = datetime(2026, 4, 1, tzinfo=UTC)  # fourteen days and a half later


def forecast(spent: str, lately: str, at: datetime = NOON, ends_at: datetime = END) -> Decimal:
    return month_end_usd(Decimal(spent), Decimal(lately), at, ends_at)


@pytest.mark.parametrize(
    ("spent", "lately", "usd"),
    [("0", "0", "0"), ("5", "0", "5"), ("5", "7", "19.5"), ("0", "7", "14.5")],
)
def test_the_rest_of_the_month_goes_on_at_the_pace_of_the_last_seven_days(
    spent: str, lately: str, usd: str
) -> None:
    assert forecast(spent, lately) == Decimal(usd)


def test_at_the_months_end_nothing_is_added() -> None:
    assert forecast("5", "7", at=END) == 5


def test_a_day_that_is_an_hour_short_costs_less() -> None:
    dublin = ZoneInfo("Europe/Dublin")  # where clocks go forward on 29 March
    before, after = (datetime(2026, 3, day, tzinfo=dublin) for day in (29, 30))

    assert forecast("0", "168", before.astimezone(UTC), after) == 23


@pytest.mark.parametrize(
    ("day", "later", "first"),
    [
        ("2026-11-23", 0, "2026-11-01"),
        ("2026-11-01", 1, "2026-12-01"),
        ("2026-12-31", 1, "2027-01-01"),
        ("2026-01-31", -1, "2025-12-01"),
        ("2026-11-30", -11, "2025-12-01"),
        ("2026-12-01", -12, "2025-12-01"),
        ("2024-02-29", 24, "2026-02-01"),
    ],
)
def test_months_are_counted_from_any_of_their_days(day: str, later: int, first: str) -> None:
    assert first_of_month(date.fromisoformat(day), later) == date.fromisoformat(first)
