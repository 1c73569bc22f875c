"""The words of the pages for states, actions, roles and fields, and for times and numbers."""

import re
import tomllib
from calendar import month_abbr, month_name
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from markupsafe import Markup

from refine import clock
from refine.jobs.batches import Work
from refine.models.audit.kinds import ACTIONS
from refine.models.runs.access.asking_rules import MAX_MINUTES, MIN_MINUTES
from refine.rules import quantities
from refine.rules.causes import spaced
from refine.web import scope


class Badge(NamedTuple):
    word: str
    shape: str
    css_class: str


_TABLES: dict[str, dict[Any, Any]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
TRIGGERS = _TABLES["triggers"]
MARKS = _TABLES["marks"]
ACCESS_ENDS = _TABLES["access_ends"]
RECORD_KINDS = _TABLES["record_kinds"]
KEYS = _TABLES["keys"]
LABELS = _TABLES["labels"]
FIGURES = _TABLES["figures"]
BULK_ACTIONS: dict[Work, dict[str, str]] = _TABLES["bulk_actions"]
VERIFICATION_ALARMS = _TABLES["verification_alarms"]
STATUSES = {name: Badge(*badge) for name, badge in _TABLES["statuses"].items()}
DELIVERIES = {name: Badge(*badge) for name, badge in _TABLES["deliveries"].items()}
ACCESS_STATES = {name: Badge(*badge) for name, badge in _TABLES["access_states"].items()}

# Memory tasks, by what they read.
TASK_KINDS = {"reflection": "reflection", "extraction": "conversation", "data_subject": "search"}

UNDONE = Badge("undone", "↺", "calm")

# The shapes of levels, worst first.
SHAPES = {"bad": "✗", "warn": "!", "calm": "i", "ok": "✓"}

# The elements that mark differences, and their words for screen readers.
CHANGED = {"gone": ("del", "removed"), "new": ("ins", "added")}

SIGN_IN_WAYS = {"password": "password", "passkey": "passkey", "oidc": "single sign-on"}

ROLES = {"admin": "admin (can make changes)", "viewer": "viewer (read-only)"}

# How long access can be asked for.
MINUTES_OFFERED = [(each, f"{each} minutes") for each in (MIN_MINUTES, 30, 60, 120, MAX_MINUTES)]

# How long a snooze lasts.
SNOOZES = [("day", "for a day"), ("week", "for a week"), ("slot", "until the next slot")]

SET_A_KEY = "Set `OPENROUTER_API_KEY` on the server (any value, if your model server needs none)."

SECOND_FACTORS = {"app": "authenticator app", "passkey": "passkey"}


_FIELD = re.compile(rf"\b({'|'.join(LABELS)})\b")


def labelled(text: str) -> str:
    return _FIELD.sub(lambda field: LABELS[field[0]], str(text))


def action(name: str, operation: str | None = None) -> str:
    if operation is not None and name == "memory_refinement_rollback":
        return "session undone" if operation == "undo" else "session rolled back"
    return ACTIONS.get(name, spaced(name))


# Quicker than strftime.
_MONTHS = list(month_abbr)


def when(at: datetime | None) -> Markup | str:
    """Format an instant in the page's time zone, with UTC in the tooltip."""
    if at is None:
        return "never"
    # a local time that comes twice would be taken for the first one
    utc = at.astimezone(UTC).isoformat(" ", "seconds")
    return Markup('<time datetime="{}T{}" title="{} UTC">{}</time>').format(
        utc[:10], utc[11:], utc[:19], minute(at)
    )


def minute(at: datetime | None) -> str:
    if at is None:
        return "never"
    local = at.astimezone(scope.zone())
    return f"{day(local)}, {local.hour:02}:{local.minute:02}"


def when_in(at: datetime, zone: str) -> Markup | str:
    local = at.astimezone(ZoneInfo(zone))
    return Markup('<time datetime="{}">{}</time>').format(
        at.astimezone(UTC).isoformat(timespec="seconds"),
        f"{local:%a} {local.day} {local:%b %Y, %H:%M}",
    )


def day(on: datetime | date) -> str:
    local = on.astimezone(scope.zone()) if isinstance(on, datetime) else on
    return f"{local.day} {_MONTHS[local.month]} {local.year}"


def month(first: date) -> str:
    return f"{month_name[first.month]} {first.year}"


def is_ahead(at: datetime | None) -> bool:
    return at is not None and at > clock.now()


def upcoming(at: datetime | None) -> Markup | str:
    """Say when something is to happen, never a time that has passed."""
    return when(at) if is_ahead(at) else "due now"


def ago(at: datetime | None) -> str:
    return "" if at is None else quantities.ago(clock.now() - at)


def seconds(span: timedelta) -> str:
    """Say how long something took: "0.4 s", "12 s", "3 min 20 s", "4 h 5 min"."""
    if span >= timedelta(hours=1):
        hours, rest = divmod(span, timedelta(hours=1))
        return f"{hours:,} h {rest // timedelta(minutes=1)} min"
    minutes, seconds = divmod(span.total_seconds(), 60)
    if minutes:
        return f"{minutes:.0f} min {seconds:.0f} s"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004 - two digits


def number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def first_lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def is_about(error: object, *fields: str) -> bool:
    return str(error or "").partition(" ")[0] in fields


def with_code(text: str) -> Markup:
    parts = enumerate(text.split("`"))
    return Markup("").join(Markup("<code>{}</code>").format(p) if n % 2 else p for n, p in parts)
