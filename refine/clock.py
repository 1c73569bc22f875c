"""The only source of time in the application."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import orjson

_ahead = timedelta(0)


def now() -> datetime:
    return datetime.now(UTC) + _ahead


def time_ahead_of_now(at: datetime) -> timedelta:
    """Return how far ``at`` lies in the future, as in a test's tick; zero for the past."""
    return max(at - (datetime.now(UTC) + _ahead), timedelta(0))


@contextmanager
def ahead(by: timedelta) -> Iterator[None]:
    """Let this process live ``by`` ahead of the time until the block ends, for simulations."""
    global _ahead  # noqa: PLW0603
    before, _ahead = _ahead, by
    try:
        yield
    finally:
        _ahead = before


def iso(at: datetime | None) -> str | None:
    """Return an instant as it is stored, hashed and shown to programs."""
    if at is None:
        return None
    in_utc = at if at.tzinfo is UTC else at.astimezone(UTC)
    if in_utc.microsecond:  # much faster, but leaves out the zeros of a whole second
        return orjson.dumps(in_utc)[1:-1].decode()
    return in_utc.isoformat(timespec="microseconds")


def days(first: datetime, last: datetime | None = None) -> str:
    """Return the first and the last day, ``2023-02-04 to 2023-06-13``, or the only one."""
    begin, end = (at.astimezone(UTC).date() for at in (first, last or first))
    return f"{begin} to {end}" if end != begin else f"{begin}"
