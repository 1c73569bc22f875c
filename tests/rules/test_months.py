"""Months by their first days."""

from datetime import date

import pytest

from refine.rules.forecast import first_of_month


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
