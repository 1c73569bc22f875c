"""The only source of time in the application."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache

_ahead = timedelta(0)


def now() -> datetime:
    """Return the current time, timezone-aware, in UTC."""
    return datetime.now(UTC) + _ahead


def time_ahead_of_now(at: datetime) -> timedelta:
    """Return how far ``at`` lies in the future; nothing for the present and the past.

    A tick of another time than the present, as in a test, looks that far ahead.
    """
    return max(at - (datetime.now(UTC) + _ahead), timedelta(0))


@contextmanager
def ahead(by: timedelta) -> Iterator[None]:
    """Let this whole process live ``by`` ahead of the time until the block ends.

    For simulations on a database of their own (``bench``). The clock keeps running
    meanwhile, in every thread, so that heartbeats are as regular as ever; the database's own clock
    stays.
    """
    global _ahead  # noqa: PLW0603
    before, _ahead = _ahead, by
    try:
        yield
    finally:
        _ahead = before


def iso(at: datetime | None) -> str | None:
    """Return an instant as it is stored, hashed and shown to programs."""
    return None if at is None else _spelled(at)


@lru_cache(maxsize=64)  # a row's instants are often one
def _spelled(at: datetime) -> str:
    in_utc = at if at.tzinfo is UTC else at.astimezone(UTC)
    return in_utc.isoformat(timespec="microseconds")
