"""The one place where the application takes its time from."""

from datetime import UTC, datetime


def now() -> datetime:
    """Return the present instant, aware, in UTC."""
    return datetime.now(UTC)
