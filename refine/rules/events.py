"""Which records are events, and what of them is told: ids, figures and words of ours alone."""

from typing import Any, Literal, NamedTuple, get_args

EventKind = Literal[
    "session.ended",
    "access.asked",
    "access.granted",
    "access.declined",
    "access.ended",
    "conversation.done",
    "conversation.given_up",
    "agent.over_budget",
    "agent.stuck",
    "verification.failed",
    "agent.failed",
    "agent.rolled_back",
    "account.over_cap",
    "token.ending",
    "clock.silent",
    "workers.silent",
]
KINDS: tuple[EventKind, ...] = get_args(EventKind)

_ENDS = ("complete", "rollback", "incomplete", "declined", "skipped", "failed")
# By the action of the record; states, such as stuck, have no record.
EVENTS: dict[str, EventKind] = {
    **{f"memory_refinement_{end}": "session.ended" for end in _ENDS},
    "memory_extraction_ended": "conversation.done",
    "memory_access_requested": "access.asked",
    "memory_access_granted": "access.granted",
    "memory_access_declined": "access.declined",
    **{f"memory_access_{end}": "access.ended" for end in ("ended", "revoked", "failed", "lapsed")},
    "verification_failed": "verification.failed",
}
_SUBJECTS = {"AccessGrant": "grant_id", "MemoryTask": "conversation_id"}
# What is told of a record's data.
_TOLD = (
    *("status", "trigger", "attempt", "started_at", "error_kind", "problems"),
    *("memories_before", "memories_after", "mass_before", "mass_after", "removed_tokens"),
    *("saved_tokens", "duplicates_removed", "mutation_count", "details_lost", "memories_kept"),
    *("prompt_tokens", "cached_tokens", "completion_tokens", "cost_usd"),
    *("grant_user_id", "duration_minutes", "expires_at", "end_reason"),
)


class Told(NamedTuple):
    """An event: its id for receivers, and what is said of it."""

    id: str
    kind: EventKind
    data: dict[str, Any]


def event_of(record: Any) -> Told | None:
    """Return the event that a record with one of these actions is, if any."""
    kind, data = EVENTS[record.action], {"agent_id": record.agent_id}
    if "undone_sessions" in record.data:  # an undo has the action of a rollback
        return None
    if kind == "conversation.done" and record.data["status"] in ("failed", "skipped"):
        kind = "conversation.given_up"
    if record.session_id is not None:
        data["session_id"] = str(record.session_id)
    if record.auditable_type in _SUBJECTS:
        data[_SUBJECTS[record.auditable_type]] = record.auditable_id
    if record.auditable_type == "AccessGrant":
        data["status"] = record.action.removeprefix("memory_access_")
    data |= {name: record.data[name] for name in _TOLD if name in record.data}
    return Told(f"record-{record.id}", kind, data)
