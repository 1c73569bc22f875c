"""The only source of time in the application."""

from datetime import UTC, datetime


def now() -> datetime:
    """Return the current time, timezone-aware, in UTC."""
    return datetime.now(UTC)


def iso(at: datetime | None) -> str | None:
    """Return an instant as it is stored, hashed and shown to programs."""
    return at.astimezone(UTC).isoformat(timespec="microseconds") if at is not None else None
