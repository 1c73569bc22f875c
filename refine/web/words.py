"""The words of the pages for states, actions, roles and fields, and for times and numbers."""

import re
from calendar import month_abbr, month_name
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from markupsafe import Markup

from refine import clock
from refine.jobs.batches import Work
from refine.models.audit.kinds import ACTIONS
from refine.models.audit.verification import AlarmKind
from refine.models.runs.access.asking_rules import MAX_MINUTES, MIN_MINUTES
from refine.rules import quantities
from refine.rules.causes import spaced
from refine.web import scope


class Badge(NamedTuple):
    word: str
    shape: str
    css_class: str


STATUSES = {
    "queued": Badge("queued", "◔", "live"),
    "running": Badge("running", "▶", "live"),
    "completed": Badge("completed", "✓", "ok"),
    "incomplete": Badge("incomplete", "◑", "warn"),
    "rolled_back": Badge("rolled back", "↶", "warn"),
    "declined": Badge("declined", "–", "declined"),
    "skipped": Badge("skipped", "○", "calm"),
    "failed": Badge("failed", "✗", "bad"),
}

# Deliveries of events.
DELIVERIES = {
    "waiting": Badge("waiting", "◔", "live"),
    "delivered": Badge("delivered", "✓", "ok"),
    "given_up": Badge("given up", "✗", "bad"),
}

# Memory tasks, by what they read.
TASK_KINDS = {"reflection": "reflection", "extraction": "conversation", "data_subject": "search"}

UNDONE = Badge("undone", "↺", "calm")

TRIGGERS = {
    "weekly": "schedule",
    "over_budget": "budget check",
    "manual": "manual",
    "api": "API",
    "cli": "command line",
}

# The shapes of levels, worst first.
SHAPES = {"bad": "✗", "warn": "!", "calm": "i", "ok": "✓"}

# The elements that mark differences, and their words for screen readers.
CHANGED = {"gone": ("del", "removed"), "new": ("ins", "added")}

# The marks in the plot of an agent's mass.
MARKS = {
    "session": "session ended",
    "undo": "rolled back or undone",
    "import": "memories imported",
    "hand": "discarded or restored by a user",
}

SIGN_IN_WAYS = {"password": "password", "passkey": "passkey", "oidc": "single sign-on"}

ROLES = {"admin": "admin (can make changes)", "viewer": "viewer (read-only)"}

ACCESS_STATES = {
    "requested": Badge("requested", "◔", "live"),
    "granted": Badge("granted", "◉", "warn"),
    "declined": Badge("declined", "–", "declined"),
    "failed": Badge("failed", "✗", "bad"),
    "lapsed": Badge("lapsed", "○", "calm"),
    "ended": Badge("ended", "✓", "ok"),
}

# How long access can be asked for.
MINUTES_OFFERED = [(each, f"{each} minutes") for each in (MIN_MINUTES, 30, 60, 120, MAX_MINUTES)]

ACCESS_ENDS = {
    "expired": "time limit reached",
    "ended_by_user": "ended by the user",
    "revoked_by_agent": "revoked by the agent",
    "revoked_by_admin": "revoked by an admin",
    "no_longer_allowed": "ended for good: its user was locked, deactivated or made a viewer, or "
    "its agent deactivated or erased",
}

# In the order in which people look for them; ``ACTIONS_OF_KIND`` has the actions of each.
RECORD_KINDS = {
    "read": "Content read",
    "rollbacks": "Rollbacks",
    "access": "Access",
    "settings": "Settings",
    "failures": "Failures",
    "sessions": "Sessions",
    "memories": "Memories",
    "users": "Users and tokens",
    "maintenance": "Maintenance",
}


class BulkAction(NamedTuple):
    """``of`` names it, with a place for its agents."""

    of: str
    done: str
    effect: str


_UNTIL_THEN = "They leave the overview until then, whatever happens, unless you bring them back."
BULK_ACTIONS: dict[Work, BulkAction] = {
    "refine": BulkAction(
        "Refine {}",
        "asked for a session",
        "Each agent is asked for its consent first. Paused agents are asked too; cool-downs and "
        "the monthly cost cap do not apply.",
    ),
    "pause": BulkAction(
        "Pause {}",
        "paused",
        "No automatic sessions start until the agents are resumed. Running sessions continue.",
    ),
    "resume": BulkAction(
        "Resume {}",
        "resumed",
        "Automatic sessions start again, with the account's runs and after budget checks.",
    ),
    "acknowledge": BulkAction(
        "Acknowledge {}",
        "acknowledged",
        "They leave the overview until something happens again. Nothing else changes.",
    ),
    "snooze_day": BulkAction("Snooze {} for a day", "snoozed for a day", _UNTIL_THEN),
    "snooze_week": BulkAction("Snooze {} for a week", "snoozed for a week", _UNTIL_THEN),
    "snooze_slot": BulkAction(
        "Snooze {} until the next slot", "snoozed until the next slot", _UNTIL_THEN
    ),
    "return": BulkAction("Bring {} back", "brought back", "They are on the overview again."),
}
# What keys do on lists of agents, where no field has the focus.
KEYS = {
    "j": "next agent",
    "k": "previous agent",
    "x": "select, or clear",
    "e": "acknowledge the selected agents, or this one",
    "z": "snooze the selected agents, or this one",
    "?": "show these keys",
}
# How long a snooze lasts.
SNOOZES = [("day", "for a day"), ("week", "for a week"), ("slot", "until the next slot")]


class AlarmWords(NamedTuple):
    headline: str
    see: str
    acknowledge: str | None


VERIFICATION_ALARMS: dict[AlarmKind, AlarmWords] = {
    "failed": AlarmWords(
        "Audit verification failed.", "What to do", "Acknowledge failed verification"
    ),
    "late": AlarmWords("Audit verification is overdue.", "See since when", None),
}

SET_A_KEY = "Set `OPENROUTER_API_KEY` on the server (any value, if your model server needs none)."

SECOND_FACTORS = {"app": "authenticator app", "passkey": "passkey"}

# Field names as forms show them; error messages use the identifiers.
LABELS = {
    "model_id": "model",
    "core_token_budget": "core memory budget",
    "refinement_threshold": "retention threshold",
    "time_zone": "time zone",
    "monthly_cost_cap_usd": "monthly cost cap",
    "kept_months": "months kept",
    "email": "e-mail",
    "duration_minutes": "duration",
}

# The fields of records whose names do not say it.
FIGURES = {
    "and_after": "with what came after it",
    "grant_user_id": "for user",
    "hint": "starts with",
    "issued_by": "link made by user",
    "llm_calls": "model calls",
    "mass_after": "core memory afterwards",
    "mass_before": "core memory before",
    "mutation_count": "edits",
    "protected": "made constitutional",
    "reading_calls": "second readings",
    "reading_completion_tokens": "completion tokens of second readings",
    "reading_cost_usd": "cost of second readings, in dollars",
    "reading_prompt_tokens": "prompt tokens of second readings",
    "retagged": "with the tags they had",
    "threshold": "retention threshold",
    "unpriced_calls": "calls of unknown cost",
    "unprotected": "no longer constitutional",
}

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
