"""How pages say things: times, numbers, states, actions. Filters and names for all templates."""

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from flask import Flask, request, url_for
from flask_login import current_user
from markupsafe import Markup, escape

from refine import clock
from refine.llm.rehearsal import MODEL_PREFIX
from refine.models.runs.access import REASONS
from refine.rules.schedules import describe_schedule
from refine.web import scope

# Word, and the shape beside it: no state is told by colour alone.
STATUSES = {
    "queued": ("queued", "◔", "live"),
    "running": ("running", "▶", "live"),
    "completed": ("completed", "✓", "ok"),
    "incomplete": ("incomplete", "◑", "warn"),
    "rolled_back": ("rolled back", "↶", "warn"),
    "declined": ("declined", "–", "warn"),
    "skipped": ("skipped", "○", "calm"),
    "failed": ("failed", "✗", "bad"),
}

# What is asked of an agent between its sessions, by what it is about.
TASK_KINDS = {"reflection": "reflection", "extraction": "conversation"}

TRIGGERS = {
    "weekly": "by the schedule",
    "over_budget": "by the budget check",
    "manual": "by hand",
    "api": "by its platform",
    "cli": "on the command line",
}

# What became of a request for access.
ACCESS_STATES = {
    "requested": ("asked", "◔", "live"),
    "granted": ("may read", "◉", "warn"),
    "declined": ("declined", "–", "calm"),
    "failed": ("failed", "✗", "bad"),
    "lapsed": ("lapsed", "○", "calm"),
    "ended": ("ended", "✓", "ok"),
}

ACCESS_ENDS = {
    "expired": "its time was over",
    "ended_by_user": "ended by who had it",
    "revoked_by_agent": "revoked by the agent",
    "revoked_by_admin": "revoked by an admin",
}

ACTIONS = {
    "memory_refinement_dedup": "exact duplicate removed",
    "memory_refinement_consolidate": "memories merged",
    "memory_refinement_update": "memory rewritten",
    "memory_refinement_delete": "memory discarded",
    "memory_refinement_protect": "memory made constitutional",
    "memory_refinement_complete": "session completed",
    "memory_refinement_declined": "session declined",
    "memory_refinement_skipped": "session skipped",
    "memory_refinement_incomplete": "session ended early",
    "memory_refinement_failed": "session failed",
    "memory_refinement_rollback": "session rolled back or undone",
    "refinement_queued": "session asked for",
    "memory_saved": "memory saved",
    "memory_imported": "memories imported",
    "memory_promoted": "memory promoted to core",
    "memory_reflection_ended": "reflection ended",
    "memory_extraction_ended": "extraction from a conversation ended",
    "memory_discarded": "memory discarded",
    "memory_restored": "memory restored",
    "memory_constitutional_toggle": "constitutional flag changed",
    "memory_access_requested": "access asked for",
    "memory_access_granted": "access granted",
    "memory_access_declined": "access declined",
    "memory_access_failed": "access not granted",
    "memory_access_lapsed": "access request lapsed",
    "memory_access_viewed": "content read",
    "memory_access_ended": "access ended",
    "memory_access_revoked": "access revoked",
    "memory_access_noted": "closing note written",
    "agent_created": "agent added",
    "agent_settings_update": "agent's settings changed",
    "account_settings_update": "account's settings changed",
    "account_created": "account added",
    "user_created": "user added",
    "user_invited": "user invited",
    "user_joined": "invitation accepted",
    "user_updated": "user changed",
    "user_password_changed": "password changed",
    "user_signed_in": "signed in",
    "user_signed_out": "signed out",
    "user_sign_in_failed": "sign-in failed",
    "token_minted": "token minted",
    "token_revoked": "token revoked",
    "keys_rotated": "keys rotated",
}

IMPORT_FORMATS = {
    "letta": "Letta: an agent file (.af), or passages as its API lists them",
    "mem0": "mem0: JSON of get_all",
    "mcp": "MCP memory server: JSON Lines",
    "refine": "Refine: a full export",
}

# What forms call a field, and errors do by its name.
LABELS = {
    "model_id": "model",
    "core_token_budget": "budget of core memory",
    "refinement_threshold": "retention threshold",
    "time_zone": "time zone",
    "monthly_cost_cap_usd": "monthly cost cap",
    "email": "e-mail",
    "duration_minutes": "duration",
    "memory_type": "kind of memory",
}
_FIELD = re.compile(rf"\b({'|'.join(LABELS)})\b")
_CODE = re.compile("`([^`]+)`")


def register(app: Flask) -> None:
    """Give the templates their filters and names."""
    for filter_ in (
        *(when, when_in, day, ago, number, usd, action, describe_schedule),
        *(first_upper, labelled, with_code),
    ):
        app.add_template_filter(filter_)
    app.context_processor(_names)


def when(at: datetime | None) -> Markup | str:
    """An instant in the page's time zone, with UTC on hovering."""
    if at is None:
        return "never"
    local = at.astimezone(scope.zone())
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        at.astimezone(UTC).isoformat(timespec="seconds"),
        f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
        f"{local.day} {local:%b %Y, %H:%M}",
    )


def when_in(at: datetime, zone: str) -> Markup | str:
    """An instant in another zone than the page's, which is named."""
    local = at.astimezone(ZoneInfo(zone))
    return Markup('<time datetime="{}">{}</time>').format(
        at.astimezone(UTC).isoformat(timespec="seconds"),
        f"{local:%a} {local.day} {local:%b %Y, %H:%M}",
    )


def day(on: datetime | date) -> str:
    """A day, in the page's time zone."""
    local = on.astimezone(scope.zone()) if isinstance(on, datetime) else on
    return f"{local.day} {local:%b %Y}"


def ago(at: datetime | None) -> str:
    """How long ago, or in how long, roughly; beside the absolute time, never instead of it."""
    if at is None:
        return ""
    passed = clock.now() - at
    words = _span(abs(passed))
    return f"{words} ago" if passed >= timedelta(0) else f"in {words}"


def number(value: int | None) -> str:
    """A whole number with separators; a dash where there is none."""
    return "–" if value is None else f"{value:,}"


def usd(value: Decimal | float) -> str:
    """An amount in dollars, to the cent; to four places below one."""
    amount = Decimal(value)
    return f"${amount:,.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"


def first_upper(text: str) -> str:
    """A text with its first letter as a capital, and the rest as it is."""
    return text[:1].upper() + text[1:]


def labelled(text: str) -> str:
    """A text in which fields are called what the forms call them."""
    return _FIELD.sub(lambda field: LABELS[field[0]], str(text))


def with_code(text: str) -> Markup:
    """A text whose commands, between backticks, are set as such."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped here


def action(name: str) -> str:
    """An audit action in words."""
    return ACTIONS.get(name, name.replace("_", " "))


def here(**changed: object) -> str:
    """This page with other arguments in its URL; None takes one away."""
    args = {**request.args.to_dict(), **changed}
    wanted = urlencode({name: value for name, value in args.items() if value is not None})
    return f"{request.path}?{wanted}" if wanted else request.path


def here_to(endpoint: str, **values: Any) -> str:
    """Another page about the account that this page is about."""
    return url_for(endpoint, account=request.args.get("account") or None, **values)


def _span(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = seconds // size
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{seconds} second{'' if seconds == 1 else 's'}"


def _names() -> dict[str, Any]:
    names: dict[str, Any] = {
        "STATUSES": STATUSES,
        "TASK_KINDS": TASK_KINDS,
        "TRIGGERS": TRIGGERS,
        "ACCESS_STATES": ACCESS_STATES,
        "ACCESS_REASONS": REASONS,
        "ACCESS_ENDS": ACCESS_ENDS,
        "ACTIONS": ACTIONS,
        "REHEARSAL_PREFIX": MODEL_PREFIX,
        "is_signed_in": current_user.is_authenticated,
        "here": here,
        "here_to": here_to,
    }
    if current_user.is_authenticated:
        names |= {"me": scope.user(), "zone_name": scope.user().account.time_zone}
    return names
