"""The wording of the pages: times, numbers, states and actions, as template filters and names."""

import re
from calendar import month_abbr, month_name
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

from flask import Flask, g, request, url_for
from flask_login import current_user
from flask_wtf.csrf import generate_csrf
from markupsafe import Markup, escape

from refine import clock
from refine.models.audit.verification import AlarmKind
from refine.models.people.invitation import VALID_FOR
from refine.models.people.sign_in import CONFIRMED_FOR
from refine.models.people.user import MIN_PASSWORD_CHARACTERS
from refine.models.runs.access import (
    MAX_MINUTES,
    MAX_PURPOSE_CHARACTERS,
    MIN_MINUTES,
    MIN_PURPOSE_CHARACTERS,
    REASONS,
)
from refine.rules import quantities
from refine.rules.personal import masked_id
from refine.rules.quantities import cost_in_words, in_days, plural, rough_span
from refine.rules.schedules import describe_schedule
from refine.web import presenting, scope
from refine.web.charts import DAYS_SHOWN, Bar, Moment, Part
from refine.web.presenting import Badge, badge, meter, part, share, sparkline, trend, usage
from refine.web.tables import as_cards

STATUSES = {
    "queued": Badge("queued", "◔", "live"),
    "running": Badge("running", "▶", "live"),
    "completed": Badge("completed", "✓", "ok"),
    "incomplete": Badge("incomplete", "◑", "warn"),
    "rolled_back": Badge("rolled back", "↶", "warn"),
    "declined": Badge("declined", "–", "warn"),
    "skipped": Badge("skipped", "○", "calm"),
    "failed": Badge("failed", "✗", "bad"),
}

# What an agent does between its sessions, by what it reads.
TASK_KINDS = {"reflection": "reflection", "extraction": "conversation"}

_UNDONE = Badge("undone", "↺", "calm")

TRIGGERS = {
    "weekly": "schedule",
    "over_budget": "budget check",
    "manual": "manual",
    "api": "API",
    "cli": "command line",
}

# What the plot of an agent's mass marks.
MARKS = {
    "session": "session ended",
    "undo": "rolled back, undone or redone",
    "import": "memories imported",
    "hand": "discarded or restored by a user",
    "save": "memory saved",
}

ROLES = {"admin": "admin (can make changes)", "viewer": "viewer (read-only)"}

ACCESS_STATES = {
    "requested": Badge("requested", "◔", "live"),
    "granted": Badge("granted", "◉", "warn"),
    "declined": Badge("declined", "–", "calm"),
    "failed": Badge("failed", "✗", "bad"),
    "lapsed": Badge("lapsed", "○", "calm"),
    "ended": Badge("ended", "✓", "ok"),
}

# How long access can be asked for.
MINUTES_OFFERED = (MIN_MINUTES, 30, 60, 120, MAX_MINUTES)

ACCESS_ENDS = {
    "expired": "time limit reached",
    "ended_by_user": "ended by the user",
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
    "memory_refinement_rollback": "session rolled back, undone or redone",
    "refinement_queued": "session requested",
    "refinement_seen": "session acknowledged",
    "memory_saved": "memory saved",
    "memory_imported": "memories imported",
    "memory_promoted": "memory promoted to core",
    "memory_reflection_ended": "reflection ended",
    "memory_extraction_ended": "conversation extraction ended",
    "memory_discarded": "memory discarded",
    "memory_restored": "memory restored",
    "memory_constitutional_toggle": "constitutional flag changed",
    "memory_access_requested": "access requested",
    "memory_access_granted": "access granted",
    "memory_access_declined": "access declined",
    "memory_access_asking_allowed": "new request allowed",
    "memory_access_failed": "access request failed",
    "memory_access_lapsed": "access request lapsed",
    "memory_access_viewed": "content read",
    "memory_access_ended": "access ended",
    "memory_access_revoked": "access revoked",
    "memory_access_noted": "closing note written",
    "agent_created": "agent added",
    "agent_settings_update": "agent settings changed",
    "account_settings_update": "account settings changed",
    "sweep_requested": "sweep requested",
    "sweep_ended": "sweep ended",
    "account_created": "account added",
    "user_created": "user added",
    "user_invited": "one-time link created",
    "user_joined": "invitation accepted",
    "user_updated": "user changed",
    "user_password_changed": "password changed",
    "user_signed_in": "signed in",
    "user_signed_out": "signed out",
    "sign_in_ended": "sign-in ended",
    "user_sign_in_failed": "sign-in failed",
    "requests_refused": "requests repeatedly refused",
    "user_join_refused": "could not join: address in use",
    "token_minted": "token created",
    "token_first_used": "token first used",
    "token_revoked": "token revoked",
    "keys_rotated": "keys rotated",
    "agent_erased": "agent erased",
    "agent_bound": "data key bound to the agent",
    "agent_prompts_exchanged": "reflection prompts swapped",
    "row_updated": "row updated",
    "rows_attested": "row digests added",
    "rows_pruned": "expired sign-ins or links deleted",
    "memories_resealed": "memories re-encrypted",
    "verification_failed": "verification failed",
    "verification_seen": "verification alarm acknowledged",
    "audit_exported": "records exported",
}

# A rollback's record names an operation if the circuit breaker had no part in it.
_REVERSALS = {"undo": "session undone", "redo": "session redone"}

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


class AlarmWords(NamedTuple):
    """What the alarm about verifications says: on every page, and on the button in Operations."""

    headline: str
    see: str
    acknowledge: str | None


VERIFICATION_ALARMS: dict[AlarmKind, AlarmWords] = {
    "failed": AlarmWords(
        "Audit verification failed.", "See what was changed", "Acknowledge failed verification"
    ),
    "altered": AlarmWords(
        "The outcome of an audit verification was altered.",
        "See which one",
        "Acknowledge altered verification",
    ),
    "late": AlarmWords("Audit verification is overdue.", "See since when", None),
}

IMPORT_FORMATS = {
    "letta": "Letta: agent file (.af), or passages from its API",
    "mem0": "mem0: JSON from get_all",
    "mcp": "MCP memory server: JSON Lines",
    "refine": "Refine: full export",
}

# Field names as forms show them; error messages use the identifiers.
LABELS = {
    "model_id": "model",
    "core_token_budget": "core memory budget",
    "refinement_threshold": "retention threshold",
    "time_zone": "time zone",
    "monthly_cost_cap_usd": "monthly cost cap",
    "email": "e-mail",
    "duration_minutes": "duration",
    "memory_type": "memory type",
}
# Quicker than strftime.
_MONTHS = list(month_abbr)
# What stands for any id while the URL of a page is built.
_ANY_ID = 7_777_777_777
# The pages of things that long lists name, with their argument; and those that keep the account.
_PAGES_OF_ONE: dict[str, tuple[str, Any]] = {
    "access.page": ("grant_id", UUID(int=_ANY_ID)),
    "agent.page": ("agent_id", _ANY_ID),
    "audit.record": ("record_id", _ANY_ID),
    "people.invite_again": ("user_id", _ANY_ID),
    "people.update": ("user_id", _ANY_ID),
    "sessions.page": ("session_id", UUID(int=_ANY_ID)),
    "tokens.revoke_form": ("token_id", _ANY_ID),
}
_IN_ACCOUNT = ("people.invite_again", "people.update", "tokens.revoke_form")
_FIELD = re.compile(rf"\b({'|'.join(LABELS)})\b")
_CODE = re.compile("`([^`]+)`")


def register(app: Flask) -> None:
    for filter_ in _FILTERS:
        app.add_template_filter(filter_)
    app.jinja_env.globals.update(_NAMES)
    app.context_processor(_of_user)


def _csrf_token() -> str:
    """Return the token of this request's forms; a long list has hundreds of forms."""
    token: str = g.get("csrf_token") or generate_csrf()
    return token


def when(at: datetime | None) -> Markup | str:
    """Format an instant in the page's time zone, with UTC in the tooltip."""
    return "never" if at is None else _when(at.astimezone(UTC), scope.zone())


# kept, because lists show the same instants again whenever a page refreshes itself
@lru_cache(maxsize=4096)
def _when(at: datetime, zone: ZoneInfo) -> Markup:
    """``at`` is in UTC: a local time that comes twice would be taken for the first one."""
    utc = at.isoformat(" ", "seconds")
    return Markup(  # noqa: S704 - digits and names of months
        f'<time datetime="{utc[:10]}T{utc[11:]}" title="{utc[:19]} UTC">{_minute(at, zone)}</time>'
    )


def minute(at: datetime) -> str:
    """Format an instant in the page's time zone as plain text, for where no markup can be."""
    return _minute(at, scope.zone())


def _minute(at: datetime, zone: ZoneInfo) -> str:
    local = at.astimezone(zone)
    return f"{_date(local)}, {local.hour:02}:{local.minute:02}"


def when_in(at: datetime, zone: str) -> Markup | str:
    """Format an instant in the given time zone, which the page must name."""
    local = at.astimezone(ZoneInfo(zone))
    return Markup('<time datetime="{}">{}</time>').format(
        at.astimezone(UTC).isoformat(timespec="seconds"),
        f"{local:%a} {local.day} {local:%b %Y, %H:%M}",
    )


def as_of() -> str:
    """Return the time of day in the page's time zone."""
    return f"{clock.now().astimezone(scope.zone()):%H:%M:%S}"


def day(on: datetime | date) -> str:
    """Format a day in the page's time zone."""
    local = on.astimezone(scope.zone()) if isinstance(on, datetime) else on
    return _date(local)


def month(first: date) -> str:
    """Format a month, given by a day of it: "November 2026"."""
    return f"{month_name[first.month]} {first.year}"


def _date(on: date) -> str:
    return f"{on.day} {_MONTHS[on.month]} {on.year}"


def ago(at: datetime | None) -> str:
    """Say roughly how long ago an instant was, or in how long it will be; empty for None."""
    return "" if at is None else quantities.ago(clock.now() - at)


def seconds(span: timedelta | None) -> str:
    """Say how long something took: "0.4 s", "12 s", "3 min 20 s", "4 h 5 min"; "" for None."""
    if span is None:
        return ""
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


def spaced(name: str) -> str:
    """Turn an identifier into words: ``worker_lost`` into "worker lost"."""
    return name.replace("_", " ")


def labelled(text: str) -> str:
    return _FIELD.sub(lambda field: LABELS[field[0]], str(text))


def is_about(error: object, *fields: str) -> bool:
    """Tell whether a message is about one of these fields: it then begins with the field's name."""
    return str(error or "").partition(" ")[0] in fields


def with_code(text: str) -> Markup:
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped here


def action(name: str, operation: str | None = None) -> str:
    """Name an action; with its record's operation, tell a rollback from an undo and a redo."""
    if operation is not None and name == "memory_refinement_rollback":
        return _REVERSALS.get(operation, "session rolled back")
    return ACTIONS.get(name, spaced(name))


def here(**changed: object) -> str:
    """Return the URL of this page with other arguments; None removes one."""
    if "here" not in g:
        g.here = request.path, request.args.to_dict()
    path, args = g.here
    wanted = urlencode([each for each in (args | changed).items() if each[1] is not None])
    return f"{path}?{wanted}" if wanted else path


def plot_marks(marks: Iterable[tuple[float, float, Moment]]) -> Markup:
    """Return the marks of the plot of an agent's mass, each a link to its session or record.

    At once, because there are many.
    """
    return Markup("\n    ").join(_plot_mark(*mark) for mark in marks)


def _plot_mark(x: float, y: float, moment: Moment) -> Markup:
    at = _date(moment.at.astimezone(scope.zone()))
    said = f"{at}: {MARKS[str(moment.mark)]}, {moment.tokens:,} tokens"
    url = (
        url_of(moment.session_id, "sessions.page")
        if moment.session_id is not None
        else url_of(moment.record_id, "audit.record")
    )
    return Markup(  # noqa: S704 - numbers, ids and words of ours
        f'<a href="{url}" aria-label="{said}"><title>{said}</title>'
        f'<use href="#mark-{moment.mark}" class="m-{moment.mark}" x="{x:g}%" y="{y:g}%"/></a>'
    )


# What the parts of a bar say of themselves, by what they show.
_PARTS_SAY: dict[str, Callable[[Part], str]] = {
    "sessions": lambda part: f"{part.amount} {STATUSES[part.name].word}",
    "tokens": lambda part: f"{part.amount:,}",
    "usd": lambda part: cost_in_words(Decimal(part.amount), 0),
}


def plot_bars(bars: Iterable[Bar], shows: str) -> Markup:
    """Return the bars of a plot; at once, because they have hundreds of parts."""
    say = _PARTS_SAY[shows]
    return Markup(  # noqa: S704 - numbers, dates and words of ours
        "\n    ".join(
            f'<rect class="{"o-" if shows == "sessions" else ""}{part.name}" x="{bar.x}" '
            f'width="{bar.width}" y="{part.y}" height="{part.height}">'
            f"<title>{_date(bar.day)}: {say(part)}</title></rect>"
            for bar in bars
            for part in bar.parts
        )
    )


def day_tick(at: datetime) -> str:
    """Format a day at the axis of a plot, which is named by its ends."""
    local = at.astimezone(scope.zone())
    return f"{local.day} {_MONTHS[local.month]}"


def status_badge(name: str, undone_at: datetime | None = None) -> Markup:
    """Return the badge of a session's or task's status, and that it was undone."""
    of_status = badge(STATUSES[name])
    return of_status if undone_at is None else of_status + " " + badge(_UNDONE)


def url_of(id_: object, page: str) -> str:
    """Return the URL of one thing's page; long lists have hundreds, and ``url_for`` is slow."""
    around: dict[str, tuple[str, str]] | None = g.get("around_ids")
    if around is None:
        around = g.around_ids = {}
    if page not in around:
        argument, any_id = _PAGES_OF_ONE[page]
        build = url_in_account if page in _IN_ACCOUNT else url_for
        before, _, after = build(page, **{argument: any_id}).partition(str(any_id))
        around[page] = before, after
    before, after = around[page]
    return f"{before}{id_}{after}"


def post_button(  # noqa: PLR0913 - what the macro ``post`` takes
    url: str,
    label: str,
    fields: Mapping[str, object],
    kind: str,
    description: str | None,
    in_place: Markup,
) -> Markup:
    """Return a form that is a single button; at once, because long lists have hundreds."""
    hidden = "".join(
        f'<input type="hidden" name="{name}" value="{escape(value)}">'
        for name, value in fields.items()
    )
    described = "" if description is None else f' aria-label="{escape(description)}"'
    return Markup(  # noqa: S704 - what is not markup already is escaped
        f'<form method="post" action="{escape(url)}" class="inline"{in_place}>\n  '
        f'<input type="hidden" name="csrf_token" value="{_csrf_token()}">{hidden}\n  '
        f'<button class="{kind}"{described}>{escape(label)}</button></form>'
    )


_FILTERS: list[Callable[..., str | bool]] = [
    as_cards,
    badge,
    meter,
    part,
    plot_bars,
    post_button,
    plot_marks,
    status_badge,
    url_of,
    usage,
    share,
    sparkline,
    trend,
    when,
    minute,
    when_in,
    day,
    month,
    day_tick,
    ago,
    seconds,
    number,
    cost_in_words,
    plural,
    in_days,
    rough_span,
    action,
    describe_schedule,
    first_upper,
    is_about,
    spaced,
    labelled,
    with_code,
    masked_id,
]


def url_in_account(endpoint: str, **values: Any) -> str:
    """Return the URL of another page for the same account."""
    return url_for(endpoint, account=request.args.get("account") or None, **values)


# Each template's, and not each request's: a context is copied for every part of a page.
_NAMES: dict[str, Any] = {
    "STATUSES": STATUSES,
    "TASK_KINDS": TASK_KINDS,
    "TRIGGERS": TRIGGERS,
    "MARKS": MARKS,
    "ROLES": ROLES,
    "ACCESS_STATES": ACCESS_STATES,
    "ACCESS_REASONS": REASONS,
    "ACCESS_ENDS": ACCESS_ENDS,
    "MINUTES_OFFERED": [(minutes, minutes) for minutes in MINUTES_OFFERED],
    "MIN_PURPOSE_CHARACTERS": MIN_PURPOSE_CHARACTERS,
    "MAX_PURPOSE_CHARACTERS": MAX_PURPOSE_CHARACTERS,
    "ACTIONS": ACTIONS,
    "RECORD_KINDS": RECORD_KINDS,
    "VERIFICATION_ALARMS": VERIFICATION_ALARMS,
    "MIN_PASSWORD_CHARACTERS": MIN_PASSWORD_CHARACTERS,
    "CONFIRMED_FOR": CONFIRMED_FOR,
    "INVITATION_VALID_FOR": VALID_FOR,
    "DAYS_SHOWN": DAYS_SHOWN,
    "view": presenting,
    "here": here,
    "as_of": as_of,
    "url_in_account": url_in_account,
}


def _of_user() -> dict[str, Any]:
    names: dict[str, Any] = {
        "is_signed_in": current_user.is_authenticated,
        "csrf_token": _csrf_token,
    }
    if current_user.is_authenticated:
        names |= {"me": scope.user(), "zone_name": scope.zone().key}
    return names
