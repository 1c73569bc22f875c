"""Times as other systems and models write them, and months."""

from datetime import UTC, date, datetime, timedelta

from refine.errors import InvalidValue

EARLIEST = datetime(1980, 1, 1, tzinfo=UTC)

# For clocks that are ahead, and for local times without a zone.
TOLERANCE = timedelta(days=1)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# (limit, units per second). Seconds reach the year 5138; each finer unit starts in 1973, so that
# no two units overlap.
_UNITS = ((10**11, 1), (10**14, 10**3), (10**17, 10**6), (10**20, 10**9))


def instant(value: object, *, now: datetime, field: str = "") -> datetime | None:
    """Return an ISO 8601 or Unix time (s to ns) since 1980, up to tomorrow; or InvalidValue."""
    at = _read(value, field)
    if at is not None and at < EARLIEST:
        raise InvalidValue(f"{field} lies before {EARLIEST.year}".lstrip())
    if at is not None and at > now + TOLERANCE:
        raise InvalidValue(f"{field} lies in the future".lstrip())
    return at


def has_passed(value: object, *, now: datetime, field: str = "") -> bool:
    """Tell whether a time, or all of a day, is over; a blank value never is."""
    at = _read(value, field)
    is_day = isinstance(value, str) and len(value.strip()) <= len("2026-01-31")
    return at is not None and at <= now - timedelta(days=is_day)


def _read(value: object, field: str) -> datetime | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        return _parse(value)
    except (ValueError, OverflowError, TypeError):
        message = f"{field} is not a time in ISO 8601 or a number of seconds since 1970"
        raise InvalidValue(message.lstrip()) from None


def from_iso(written: str) -> datetime:
    """Return an ISO 8601 time in UTC; ValueError, or OverflowError near the years 1 and 9999."""
    at = datetime.fromisoformat(written)
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def _parse(value: object) -> datetime:
    written = value.strip() if isinstance(value, str) else value
    if isinstance(written, str):
        is_number = written.isascii() and written.isdigit() and len(written) > len("20260131")
        if not is_number:
            return from_iso(written)
        written = int(written)
    if isinstance(written, bool) or not isinstance(written, int | float):
        raise TypeError
    for limit, per_second in _UNITS:
        if abs(written) < limit:
            exact = written * 10**6
            microseconds = exact // per_second if isinstance(exact, int) else exact / per_second
            return _EPOCH + timedelta(microseconds=round(microseconds))
    raise ValueError


def first_of_month(day: date, months_later: int = 0) -> date:
    years, month = divmod(day.month - 1 + months_later, 12)
    return date(day.year + years, month + 1, 1)
