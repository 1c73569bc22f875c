"""The words of the pages for states, actions, roles and fields."""

import re
from typing import NamedTuple

from refine.models.audit.verification import AlarmKind
from refine.models.runs.access import (
    MAX_MINUTES,
    MIN_MINUTES,
)
from refine.web.formatting import spaced
from refine.web.presenting import Badge

STATUSES = {
    "queued": Badge("queued", "◔", "live"),
    "running": Badge("running", "▶", "live"),
    "completed": Badge("completed", "✓", "ok"),
    "incomplete": Badge("incomplete", "◑", "warn"),
    "rolled_back": Badge("rolled back", "↶", "warn"),
    "declined": Badge("declined", "–", "calm"),
    "skipped": Badge("skipped", "○", "calm"),
    "failed": Badge("failed", "✗", "bad"),
}

# What an agent does between its sessions, by what it reads.
TASK_KINDS = {"reflection": "reflection", "extraction": "conversation"}

UNDONE = Badge("undone", "↺", "calm")

TRIGGERS = {
    "weekly": "schedule",
    "over_budget": "budget check",
    "manual": "manual",
    "api": "API",
    "cli": "command line",
}

# How differences mark what changed, and say so to screen readers.
CHANGED = {"gone": ("del", "removed"), "new": ("ins", "added")}

# What the plot of an agent's mass marks.
MARKS = {
    "session": "session ended",
    "undo": "rolled back or undone",
    "import": "memories imported",
    "hand": "discarded or restored by a user",
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
    "no_longer_allowed": "ended for good: its user or its agent was deactivated or erased, or the "
    "user made a viewer",
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
    "agent_created": "agent added",
    "agent_settings_update": "agent settings changed",
    "account_settings_update": "account settings changed",
    "sweep_requested": "sweep requested",
    "account_created": "account added",
    "user_created": "user added",
    "user_invited": "one-time link created",
    "invitation_ended": "one-time link ended",
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
    "row_updated": "row updated",
    "rows_pruned": "expired sign-ins or links deleted",
    "verification_failed": "verification failed",
    "verification_seen": "verification alarm acknowledged",
    "audit_exported": "records exported",
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


class AlarmWords(NamedTuple):
    """What the alarm about verifications says: on every page, and on the button in Operations."""

    headline: str
    see: str
    acknowledge: str | None


VERIFICATION_ALARMS: dict[AlarmKind, AlarmWords] = {
    "failed": AlarmWords(
        "Audit verification failed.", "See what was changed", "Acknowledge failed verification"
    ),
    "late": AlarmWords("Audit verification is overdue.", "See since when", None),
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
}

_FIELD = re.compile(rf"\b({'|'.join(LABELS)})\b")


def labelled(text: str) -> str:
    return _FIELD.sub(lambda field: LABELS[field[0]], str(text))


def action(name: str, operation: str | None = None) -> str:
    """Name an action; with its record's operation, tell a rollback from an undo."""
    if operation is not None and name == "memory_refinement_rollback":
        return "session undone" if operation == "undo" else "session rolled back"
    return ACTIONS.get(name, spaced(name))
