"""Days in URLs: as the page's time zone has them."""

from datetime import date, datetime, timedelta

from refine.web import scope


def day_of(text: str) -> date | None:
    """Return the day that an ISO date names; None for anything else."""
    try:
        given = date.fromisoformat(text)
    except ValueError:
        return None
    return given if 1970 <= given.year < 9999 else None


def midnight(day: date, days_later: int = 0) -> datetime:
    """Return when a day, or one so many days later, begins."""
    on = day + timedelta(days=days_later)
    return datetime(on.year, on.month, on.day, tzinfo=scope.zone())
