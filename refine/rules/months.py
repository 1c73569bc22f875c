"""Months, each by its first day."""

from datetime import date

_MONTHS_OF_YEAR = 12


def first_of_month(day: date, months_later: int = 0) -> date:
    """Return the first day of a day's month, or of one that many months later (below 0: before)."""
    years, month = divmod(day.month - 1 + months_later, _MONTHS_OF_YEAR)
    return date(day.year + years, month + 1, 1)
