"""The form of a schedule: what it shows, and what it sends."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, time
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any, Literal

from werkzeug.datastructures import MultiDict

from refine import settings
from refine.errors import InvalidValue
from refine.models import Account
from refine.rules.schedules import (
    WEEKDAYS,
    WeeklyTime,
    is_moved,
    slots_after,
    valid_schedule,
    valid_time_zone,
)

# The default of the installation, days and a time of the week, or a cron expression.
Kind = Literal["default", "weekly", "cron"]

# The fields that a message can be about.
FIELDS = ("days", "time", "schedule", "time_zone", "monthly_cost_cap_usd")
_SLOTS_SHOWN = 5
_MONDAY_FIRST = (1, 2, 3, 4, 5, 6, 0)
_FIRST_TIME = WeeklyTime((1,), time(4))


@dataclass(frozen=True)
class Plan:
    """A schedule in a time zone, as an account has it or as the form sends it."""

    schedule: str
    time_zone: str

    @classmethod
    def of(cls, account: Account) -> "Plan":
        return cls(account.effective_schedule, account.time_zone)

    @classmethod
    def sent(cls, account: Account, fields: Mapping[str, Any]) -> "Plan":
        """Return what the account would have; InvalidValue for what it could not."""
        schedule = fields.get("schedule", account.schedule)
        time_zone = valid_time_zone(fields.get("time_zone", account.time_zone))
        valid = settings.current().schedule if schedule is None else valid_schedule(schedule)
        return cls(valid, time_zone)

    def slots(self, at: datetime) -> list[tuple[datetime, bool]]:
        """Return the next slots, and whether a clock change moves them."""
        following = islice(slots_after(self.schedule, self.time_zone, at), _SLOTS_SHOWN)
        return [(slot, is_moved(slot, self.schedule, self.time_zone)) for slot in following]


@dataclass(frozen=True)
class Picker:
    """What the fields about days, time and cron expression show."""

    kind: Kind
    days: Collection[int]
    time: str
    cron: str

    @classmethod
    def of(cls, schedule: str | None, form: MultiDict[str, str]) -> "Picker":
        """Show what was sent or, if nothing was, the account's own schedule."""
        if (kind := _kind(form)) is not None:
            days = [day for day in range(7) if str(day) in form.getlist("days")]
            return cls(kind, days, form.get("time", ""), form.get("schedule", ""))
        weekly = WeeklyTime.of(schedule) if schedule is not None else None
        shown = weekly or _FIRST_TIME
        kind = "default" if schedule is None else "cron" if weekly is None else "weekly"
        return cls(kind, shown.days, f"{shown.at:%H:%M}", schedule or "")

    @property
    def is_default(self) -> bool:
        return self.kind == "default"

    @property
    def is_weekly(self) -> bool:
        return self.kind == "weekly"

    @property
    def is_cron(self) -> bool:
        return self.kind == "cron"

    @property
    def weekdays(self) -> list[tuple[int, str]]:
        """The days of the week by number, Monday first."""
        return [(day, WEEKDAYS[day]) for day in _MONDAY_FIRST]


def stored(account: Account) -> dict[str, Any]:
    """Return the settings that the form is drawn from; its plan in one, as it sends it."""
    return {
        "schedule": account.schedule,
        "time_zone": account.time_zone,
        "monthly_cost_cap_usd": account.monthly_cost_cap_usd,
    }


def sent_settings(form: MultiDict[str, str]) -> dict[str, Any]:
    """Return the account's settings that a form sends; raises InvalidValue."""
    fields: dict[str, Any] = {}
    if (kind := _kind(form)) is not None:
        fields["schedule"] = _schedule(form, kind)
    if "time_zone" in form:
        fields["time_zone"] = form["time_zone"].strip()
    if "paused" in form:
        fields["paused"] = form["paused"] == "1"
    if "monthly_cost_cap_usd" in form:
        fields["monthly_cost_cap_usd"] = _usd(form["monthly_cost_cap_usd"])
    return fields


def _kind(form: MultiDict[str, str]) -> Kind | None:
    """Return how the form says when; a cron expression alone also does."""
    match form.get("kind"):
        case "default":
            return "default"
        case "weekly":
            return "weekly"
    return "cron" if "schedule" in form else None


def _schedule(form: MultiDict[str, str], kind: Kind) -> str | None:
    if kind == "default":
        return None
    if kind == "weekly":
        return WeeklyTime.picked(form.getlist("days"), form.get("time", "").strip()).schedule
    return form["schedule"].strip() or None


def _usd(text: str) -> Decimal | None:
    given = text.strip().removeprefix("$").replace(",", "")
    if not given:
        return None
    try:
        amount = Decimal(given)
    except InvalidOperation:
        amount = Decimal(-1)
    if not (amount.is_finite() and 0 <= amount < 10**9):
        raise InvalidValue("monthly_cost_cap_usd must be an amount in dollars, such as 25 or 9.50")
    return amount.quantize(Decimal("0.01"))
