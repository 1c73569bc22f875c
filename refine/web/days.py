"""Days in URLs, in the page's time zone."""

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
    """Return when a day begins, or the day so many days later."""
    on = day + timedelta(days=days_later)
    return datetime(on.year, on.month, on.day, tzinfo=scope.zone())
