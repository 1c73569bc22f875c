"""Schedules: cron expressions in an account's local time, their slots, and how they read in words.

A local time that a clock change skips runs at the next valid minute; a repeated one runs only the
first time.
"""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

from croniter import CroniterError, croniter

from refine.errors import InvalidValue

_DAYS = ("Sundays", "Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays")

# Longer than any clock change: how far local time may be ahead of the last slot.
_WIDEST_CLOCK_CHANGE = timedelta(hours=25)


def valid_schedule(schedule: object, *, field: str = "schedule") -> str:
    """Return a cron expression of five fields, or raise InvalidValue.

    Refuses expressions that never come due (30 February) and croniter's ``R``, a random time that
    changes with every call.
    """
    fields = schedule.split() if isinstance(schedule, str) else []
    text = " ".join(fields)
    if len(fields) != 5 or "r" in (each[0].lower() for each in fields) or not _comes_due(text):
        raise InvalidValue(
            f"{field} must be a cron expression of five fields, such as '0 4 * * 1' (Mondays 04:00)"
        )
    return text


def valid_time_zone(name: object) -> str:
    """Return an IANA time zone's name, or raise InvalidValue."""
    if not isinstance(name, str) or name not in available_timezones():
        raise InvalidValue("time_zone must be an IANA name, such as UTC or Europe/London")
    return name


def last_slot(schedule: str, time_zone: str, at: datetime) -> datetime:
    """Return the latest slot at or before ``at`` (aware), in UTC."""
    zone = ZoneInfo(time_zone)
    local = at.astimezone(zone).replace(tzinfo=None) + _WIDEST_CLOCK_CHANGE
    slots = croniter(schedule, local)
    while True:
        slot = _instant(slots.get_prev(datetime), zone)
        if slot <= at:
            return slot


def next_slot(schedule: str, time_zone: str, at: datetime) -> datetime:
    """Return the first slot after ``at`` (aware), in UTC."""
    zone = ZoneInfo(time_zone)
    local = at.astimezone(zone).replace(tzinfo=None) - _WIDEST_CLOCK_CHANGE
    slots = croniter(schedule, local)
    while True:
        slot = _instant(slots.get_next(datetime), zone)
        if slot > at:
            return slot


def describe_schedule(schedule: str) -> str:
    """Return a cron expression of five fields in words, or quoted if it is not a simple one."""
    minute, hour, day, month, weekday = schedule.split()
    is_one_time = minute.isdigit() and hour.isdigit()
    if not is_one_time or month != "*":
        return f"on the schedule {schedule}"
    at = f"at {int(hour):02}:{int(minute):02}"
    if day == "*" and weekday == "*":
        return f"every day {at}"
    if day == "*" and all(each.isdigit() for each in weekday.split(",")):
        named = [_DAYS[int(each) % 7] for each in weekday.split(",")]
        return f"on {_listed(named)} {at}"
    if day.isdigit() and weekday == "*":
        return f"on day {int(day)} of each month {at}"
    return f"on the schedule {schedule}"


def _comes_due(schedule: str) -> bool:
    try:
        croniter(schedule, datetime(2000, 1, 1, tzinfo=UTC)).get_next()
    except CroniterError:
        return False
    return True


def _instant(local: datetime, zone: ZoneInfo) -> datetime:
    """Return the UTC instant of a local time: the first if repeated, the next valid if skipped."""
    while True:
        instant = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
        if instant.astimezone(zone).replace(tzinfo=None) == local:
            return instant
        local += timedelta(minutes=1)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
