"""Cron schedules in local time: skipped times run at the next valid minute, repeated ones once."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, time, timedelta
from functools import cache, lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from croniter import CroniterError, croniter

from refine.errors import InvalidValue

# By their numbers in a cron expression.
WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")

# Enough to name every minute, hour, day, month and weekday; the clock reads it every minute.
_MAX_CHARACTERS = 500

# Longer than any clock change: how far local time may be ahead of the last slot.
_WIDEST_CLOCK_CHANGE = timedelta(hours=25)

# searches the file system
_time_zones = cache(available_timezones)


class WeeklyTime(NamedTuple):
    """A time of day on some days of the week, in order, by their numbers in a cron expression."""

    days: tuple[int, ...]
    at: time

    @classmethod
    def of(cls, schedule: str) -> "WeeklyTime | None":
        (minutes, hours, *dates, days), which_ones = croniter.expand(schedule)
        if which_ones or dates != [["*"], ["*"]] or len(minutes) != 1 or len(hours) != 1:
            return None
        if "*" in (*minutes, *hours):
            return None
        return cls(tuple(range(7)) if days == ["*"] else tuple(days), time(hours[0], minutes[0]))

    @classmethod
    def picked(cls, days: Iterable[str], at: str) -> "WeeklyTime":
        known = [day for day in range(7) if str(day) in days]
        if not known:
            raise InvalidValue("days must include at least one day of the week")
        try:
            return cls(tuple(known), time.fromisoformat(at))
        except ValueError:
            raise InvalidValue("time must be a time of day, such as 04:00") from None

    @property
    def schedule(self) -> str:
        days = "*" if len(self.days) == len(WEEKDAYS) else ",".join(map(str, self.days))
        return f"{self.at.minute} {self.at.hour} * * {days}"


def valid_schedule(schedule: object, *, field: str = "schedule") -> str:
    """Return a cron expression of five fields that comes due, without croniter's random ``R``."""
    fields = schedule.split() if isinstance(schedule, str) else []
    text = " ".join(fields)
    if len(text) > _MAX_CHARACTERS:
        raise InvalidValue(f"{field} must have at most {_MAX_CHARACTERS} characters")
    is_valid = len(fields) == 5 and "r" not in (each[0].lower() for each in fields)
    try:
        croniter(text if is_valid else "", datetime(2000, 1, 1, tzinfo=UTC)).get_next()
    except CroniterError:
        raise InvalidValue(
            f"{field} must be a cron expression of five fields, such as '0 4 * * 1' (Mondays 04:00)"
        ) from None
    return text


def valid_time_zone(name: object) -> str:
    if not isinstance(name, str) or name not in _time_zones():
        raise InvalidValue("time_zone must be an IANA name, such as UTC or Europe/London")
    return name


def last_slot(schedule: str, time_zone: str, at: datetime) -> datetime:
    return next(slots_until(schedule, time_zone, at))


def next_slot(schedule: str, time_zone: str, at: datetime) -> datetime:
    return next(slots_after(schedule, time_zone, at))


def slots_until(schedule: str, time_zone: str, at: datetime) -> Iterator[datetime]:
    """Yield the slots at or before ``at`` (aware), in UTC, the latest first."""
    zone = ZoneInfo(time_zone)
    local = at.astimezone(zone).replace(tzinfo=None) + _WIDEST_CLOCK_CHANGE
    slots, earliest = croniter(schedule, local), at + timedelta.resolution
    while True:
        slot = _instant(slots.get_prev(datetime), zone)
        if slot < earliest:
            earliest = slot
            yield slot


def slots_after(schedule: str, time_zone: str, at: datetime) -> Iterator[datetime]:
    """Yield the slots after ``at`` (aware), in UTC, the earliest first."""
    zone = ZoneInfo(time_zone)
    local = at.astimezone(zone).replace(tzinfo=None) - _WIDEST_CLOCK_CHANGE
    slots, latest = croniter(schedule, local), at
    while True:
        slot = _instant(slots.get_next(datetime), zone)
        if slot > latest:
            latest = slot
            yield slot


def is_moved(slot: datetime, schedule: str, time_zone: str) -> bool:
    """Tell whether a clock change skips the slot's own local time, so that it comes later."""
    local = slot.astimezone(ZoneInfo(time_zone)).replace(tzinfo=None)
    return not croniter.match(schedule, local)


@lru_cache(maxsize=1024)
def describe_schedule(schedule: str) -> str:
    """Return a cron expression of five fields in words, or quoted if it is not a simple one."""
    if (weekly := WeeklyTime.of(schedule)) is not None:
        at = f"at {weekly.at:%H:%M}"
        if len(weekly.days) == len(WEEKDAYS):
            return f"every day {at}"
        *first, last = [f"{WEEKDAYS[day]}s" for day in weekly.days]
        return f"on {', '.join(first)} and {last} {at}" if first else f"on {last} {at}"
    minute, hour, day, *others = schedule.split()
    if minute.isdigit() and hour.isdigit() and day.isdigit() and others == ["*", "*"]:
        return f"on day {int(day)} of each month at {int(hour):02}:{int(minute):02}"
    return f"on the schedule {schedule}"


def _instant(local: datetime, zone: ZoneInfo) -> datetime:
    """Return the UTC instant of a local time: the first if repeated, the next valid if skipped."""
    while True:
        instant = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
        if instant.astimezone(zone).replace(tzinfo=None) == local:
            return instant
        local += timedelta(minutes=1)
