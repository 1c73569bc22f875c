"""What a record tells, in a sentence, and what it is about, with its page."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from flask import url_for

from refine.extensions import db
from refine.models import AuditLog, User
from refine.models.exported import exported_data
from refine.models.ledger.history import effect_tokens
from refine.models.runs.access import NO_LONGER_ALLOWED, REASONS
from refine.rules.quantities import plural
from refine.web.audit.changes import memory_changes
from refine.web.formatting import first_upper, spaced
from refine.web.links import url_in_account
from refine.web.words import ACCESS_ENDS, TASK_KINDS, TRIGGERS, action, labelled

_SENTENCES = {
    "memory_refinement_dedup": "{duplicate} was an exact duplicate of memory #{duplicate_of} and "
    "was discarded before {agent} was asked.",
    "memory_refinement_consolidate": "{agent} merged {old} into {new}{effect}.",
    "memory_refinement_update": "{agent} rewrote {old}{effect}.",
    "memory_refinement_delete": "{agent} discarded {old}{effect}.",
    "memory_refinement_protect": "{agent} made {old} constitutional.",
    "memory_refinement_complete": "{agent} completed its session with {mutation_count}.{masses}",
    "memory_refinement_declined": "{agent} did not consent{why}.",
    "memory_refinement_skipped": "The session of {agent} was skipped{why}.",
    "memory_refinement_incomplete": "{agent}'s session ended early{why}.{masses}",
    "memory_refinement_failed": "{agent}'s session failed{why}.",
    "memory_refinement_rollback": "All changes of {agent}'s session were rolled back{why}.",
    "undone": "{undone_sessions} of {agent} {were} undone{by}: {undone_records} reversed.",
    "refinement_queued": "A session of {agent} was requested{how}.",
    "refinement_seen": "The outcome of {agent}'s session was acknowledged{by}.",
    "memory_saved": "{new} of {agent} was saved{by}.",
    "memory_imported": "{added} imported for {agent}{origin}{by}.",
    "memory_promoted": "{agent} promoted {old} to its core memories.",
    "memory_reflection_ended": "{agent}'s {task} {status}: {memories_kept} kept.",
    "memory_extraction_ended": "{agent}'s {task} {status}: {memories_kept} kept.",
    "memory_discarded": "{old} of {agent} was discarded{by}{effect}.",
    "memory_restored": "{old} of {agent} was restored{by}{effect}.",
    "memory_constitutional_toggle": "{old} of {agent} was made {flag}{by}.",
    "memory_access_requested": "{asker} asked to read {agent}'s memories for {duration_minutes}"
    "{access_reason}.",
    "memory_access_granted": "{agent} let {asker} read its memories for {duration_minutes}.",
    "memory_access_declined": "{agent} did not let {asker} read its memories.",
    "memory_access_asking_allowed": "{agent} lets {asker} ask again.",
    "memory_access_failed": "{agent} gave {asker} no valid answer; nothing was shown.",
    "no longer allowed": "{asker} was no longer allowed to ask {agent}; nothing was shown.",
    "memory_access_lapsed": "No worker could ask {agent} for {asker} in time.",
    "memory_access_viewed": "{asker} read {read}.",
    "memory_access_ended": "{asker} may no longer read {agent}'s memories: {access_end}.",
    "memory_access_revoked": "{asker} may no longer read {agent}'s memories: {access_end}.",
    "agent_created": "{agent} was added{by}, with the model {model_id}.",
    "agent_settings_update": "{agent}'s {settings} changed{by}{changes}.",
    "account_settings_update": "The account's {settings} changed{by}{changes}.",
    "sweep_requested": "A sweep over the account's agents was requested{by}.",
    "user_created": "{subject} was added{by}.",
    "user_invited": "A one-time link for {subject} was created{by}.",
    "user_joined": "{subject} accepted the invitation.",
    "user_updated": "{subject} was changed{by}: now {role}, {state}.",
    "time zone chosen": "The pages of {subject} show times in {zone} since then.",
    "user_password_changed": "{subject} has a new password.",
    "user_signed_in": "{subject} signed in.",
    "user_signed_out": "{subject} signed out.",
    "requests_refused": "{refusals} were refused within an hour, the last one{made_by} as {last}.",
    "token_minted": "The {kind} token {hint}… was created{by}.",
    "token_first_used": "The {kind} token {hint}… was used for the first time{by}.",
    "token_revoked": "The {kind} token {hint}… was revoked{by}.",
    "agent_erased": "{agent}'s data key was destroyed{by}: its content can never be decrypted "
    "again.",
    "verification_failed": "{problems} found: {first}.",
    "audit_exported": "Records were exported as {format}{by}: {which}.",
}
# Counts in a record's data, and what they count.
_COUNTED = {
    "mutation_count": ("change", "changes"),
    "added": ("memory", "memories"),
    "memories_kept": ("memory", "memories"),
    "duration_minutes": ("minute", "minutes"),
    "refusals": ("request", "requests"),
    "problems": ("problem", "problems"),
}
_ACTORS = {
    "platform": "the platform",
    "command line": "the command line",
    "first start": "the first start",
}
# What was read under a grant, apart from the memories that are named.
_READ = {
    "audit_record": "a record",
    "export": "an export",
    "prompts": "the prompts",
    "session": "a session",
    "versions": "the versions of a memory",
}
_MOST_NAMED = 8

_Data = Mapping[str, Any]


def sentence(record: AuditLog) -> str:
    """Return what the record tells in plain words; those of its action, if it tells no more."""
    data = exported_data(record)
    agent = record.agent.name if record.agent is not None else "the agent"
    by = _by(record, agent)
    told = _SENTENCES.get(_key(record, data), f"{action(record.action)}{{by}}.")
    text = told.format_map(
        defaultdict(
            str,
            data
            | {name: plural(data.get(name, 0), *noun) for name, noun in _COUNTED.items()}
            | {"agent": agent, "by": by, "made_by": by and f", made{by},"}
            | {"subject": _email(record.auditable_id), "asker": _email(data.get("grant_user_id"))}
            | _of_memories(record)
            | _of_session(data, by)
            | _of_access(data, agent)
            | _of_settings(data),
        )
    )
    begins_with_name = told.startswith("{agent}") and record.agent is not None
    return text if begins_with_name or "@" in text.partition(" ")[0] else first_upper(text)


def _key(record: AuditLog, data: _Data) -> str:
    """Return the name of the record's sentence: that of its action, for all but three."""
    match record.action, data:
        case "memory_refinement_rollback", {"operation": "undo"}:
            return "undone"
        case "memory_access_failed", {"kind": kind} if kind == NO_LONGER_ALLOWED:
            return "no longer allowed"
        case "user_updated", {"time_zone": _}:
            return "time zone chosen"
    return record.action


def _by(record: AuditLog, agent: str) -> str:
    """Say who acted, after what was done; empty if that is not on record."""
    if record.user is not None:
        return f" by {record.user.email}"
    by = record.by
    return f" by {agent if by == 'agent' else _ACTORS.get(by, by)}" if by else ""


def _email(user_id: object) -> str:
    """Name a user by id."""
    user = db.session.get(User, int(str(user_id))) if str(user_id).isdigit() else None
    return user.email if user is not None else "a user"


def _of_memories(record: AuditLog) -> dict[str, str]:
    changes, tokens = memory_changes(record), effect_tokens(record.data)
    old = [change.id for change in changes if not change.is_new]
    more = "fewer" if tokens and tokens < 0 else "more"
    return {
        "old": named(old),
        "duplicate": named(old[:1]),
        "new": named([change.id for change in changes if change.is_new]),
        "effect": f": {plural(abs(tokens), 'token')} {more}" if tokens else "",
    }


def _of_session(data: _Data, by: str) -> dict[str, str]:
    before, after = data.get("mass_before"), data.get("mass_after")
    has_masses = before is not None and after is not None
    trigger, undone = TRIGGERS.get(data.get("trigger", "")), len(data.get("undone_sessions", ()))
    return {
        "why": f": {data['reason']}" if data.get("reason") else "",
        "how": by or (f" ({trigger})" if trigger else ""),
        "masses": f" Its core memories went from {before:,} to {after:,} tokens."
        if has_masses
        else "",
        "undone_sessions": plural(undone, "session"),
        "were": "was" if undone == 1 else "were",
        "undone_records": plural(len(data.get("undone_records", ())), "recorded change"),
        "task": TASK_KINDS.get(data.get("kind", ""), "task"),
        "status": spaced(data.get("status", "ended")),
        "origin": f" from {data['source']}" if data.get("source") else "",
        "flag": "constitutional" if data.get("constitutional") else "non-constitutional",
    }


def _of_access(data: _Data, agent: str) -> dict[str, str]:
    ids, what = data.get("ids", ()), data.get("what", "")
    which = f": {named(ids)}" if ids else ""
    reason = REASONS.get(data.get("reason", ""))
    return {
        "access_reason": f": {reason}" if reason else "",
        "access_end": ACCESS_ENDS.get(data.get("end_reason", ""), "it is over"),
        "read": f"{_READ[what]} of {agent}{which}" if what in _READ else f"{named(ids)} of {agent}",
    }


def _of_settings(data: _Data) -> dict[str, str]:
    changes, chosen = data.get("changes", {}), data.get("filter", {})
    field = spaced(labelled(data.get("field", "setting")))
    listed = [f"{spaced(labelled(name))} {_from_to(each)}" for name, each in changes.items()]
    which = ", ".join(f"{labelled(name)} {spaced(str(value))}" for name, value in chosen.items())
    return {
        "settings": "settings were" if changes else f"{field} was",
        "changes": f": {'; '.join(listed)}" if listed else "",
        "zone": data.get("time_zone") or "the account's time zone",
        "role": data.get("role", "a user"),
        "state": "active" if data.get("active") else "not active",
        "last": spaced(data.get("last", "forbidden")),
        "format": data.get("format", "a file"),
        "which": f"records with {spaced(which)}" if which else "all visible records",
    }


def _from_to(change: Sequence[Any]) -> str:
    before, after = ("not set" if each is None else str(each) for each in change)
    return f"{before} → {after}"


def named(ids: Sequence[int]) -> str:
    """Name memories by their numbers."""
    if not ids:
        return "no memories"
    listed = [f"#{id_}" for id_ in ids]
    if len(listed) > _MOST_NAMED:
        return plural(len(listed), "memory", "memories")
    *first, last = listed
    return f"memories {', '.join(first)} and {last}" if first else f"memory {last}"


_NAMES = {
    "AccessGrant": "access",
    "Account": "account",
    "Agent": "agent",
    "AgentMemory": "memory",
    "ApiToken": "token",
    "MemoryTask": "reflection or conversation",
    "RefinementSession": "session",
    "SignIn": "sign-in",
    "User": "user",
}
_URLS: dict[str, Callable[[AuditLog], str]] = {
    "AccessGrant": lambda record: url_for("access.page", grant_id=record.auditable_id),
    "Agent": lambda record: url_for("agent.page", agent_id=record.agent_id),
    "AgentMemory": lambda record: url_for(
        "ledger.memory_page", agent_id=record.agent_id, memory_id=record.auditable_id
    ),
    "ApiToken": lambda record: url_in_account("tokens.listing"),
    "MemoryTask": lambda record: url_for("agent.tasks", agent_id=record.agent_id),
    "RefinementSession": lambda record: url_for("sessions.page", session_id=record.auditable_id),
    "User": lambda record: url_in_account("people.listing"),
}


class Subject(NamedTuple):
    """What a record is about; ``url`` is None if no page shows it."""

    name: str
    url: str | None


def subject_of(record: AuditLog) -> Subject | None:
    """Return what the record is about, if it names something."""
    kind = record.auditable_type
    if kind is None:
        return None
    url = _URLS[kind](record) if kind in _URLS else None
    number = "#" if str(record.auditable_id).isdigit() else ""
    return Subject(f"{_NAMES[kind]} {number}{record.auditable_id}", url)
