"""What forms offer, and parsing of the numbers and days that forms and URLs send."""

from datetime import date, datetime, timedelta
from functools import cache
from uuid import UUID
from zoneinfo import available_timezones

from flask import request

from refine.errors import InvalidValue
from refine.web import scope

_MAX_NUMBER_DIGITS = 12


def whole_number(text: str, field: str) -> int:
    """Parse a whole number, with or without thousands separators; raises InvalidValue."""
    digits = text.replace(",", "").strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _MAX_NUMBER_DIGITS:
        raise InvalidValue(f"{field} must be a whole number")
    return int(digits)


def day_of(text: str) -> date | None:
    """Return the day that an ISO date names; None for anything else."""
    try:
        given = date.fromisoformat(text)
    except ValueError:
        return None
    return given if 1970 <= given.year < 9999 else None


def month_of(text: str) -> date | None:
    """Return the first day of the month that is given like 2026-11; None for anything else."""
    return day_of(f"{text}-01")


def uuid_of(text: str) -> UUID | None:
    """Return the id of a session; None for anything else."""
    try:
        return UUID(text)
    except ValueError:
        return None


def instant_of(text: str) -> datetime | None:
    """Return the instant that an ISO time with its zone names; None for anything else."""
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        return None
    return given if given.tzinfo is not None and 1970 <= given.year < 9999 else None


def midnight(day: date, days_later: int = 0) -> datetime:
    """Return when a day begins, or the day so many days later."""
    on = day + timedelta(days=days_later)
    return datetime(on.year, on.month, on.day, tzinfo=scope.zone())


@cache
def time_zones() -> list[str]:
    """Return the zones that are named by a place, without aliases and technical names."""
    technical = ("Etc", "posix", "right")
    zones = available_timezones()
    return sorted(zone for zone in zones if "/" in zone and not zone.startswith(technical))


def own_path(path: str) -> str:
    """Return a path that a form or URL names to go on to; empty unless it is on this site."""
    is_plain = path.isprintable() and "\\" not in path
    root = f"{request.script_root}/"
    return path if is_plain and path.startswith(root) and not path.startswith("//") else ""
