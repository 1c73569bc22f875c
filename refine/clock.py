"""The one place where time comes from."""

from datetime import UTC, datetime


def now() -> datetime:
    """Return the current instant: aware, in UTC."""
    return datetime.now(UTC)


def iso(at: datetime | None) -> str | None:
    """Return the one spelling of an instant that is stored, hashed and shown to programs."""
    return at.astimezone(UTC).isoformat(timespec="microseconds") if at is not None else None
