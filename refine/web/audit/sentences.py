"""What a record tells, in a sentence, and what it is about, with its page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from flask import url_for

from refine.extensions import db
from refine.models import AuditLog, User
from refine.models.exported import exported_data
from refine.models.ledger.history import effect_tokens
from refine.models.runs.access import NO_LONGER_ALLOWED, REASONS
from refine.rules.quantities import plural
from refine.web.formatting import first_upper, spaced
from refine.web.links import url_in_account
from refine.web.presenting import MemoryChange, memory_changes
from refine.web.words import ACCESS_ENDS, ACTIONS, TASK_KINDS, TRIGGERS, labelled

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


@dataclass(frozen=True)
class Told:
    """A record, and what sentences take from it."""

    record: AuditLog

    @cached_property
    def data(self) -> dict[str, Any]:
        return exported_data(self.record)

    @property
    def agent(self) -> str:
        return self.record.agent.name if self.record.agent is not None else "the agent"

    @property
    def by(self) -> str:
        """Say who acted, after what was done; empty if that is not on record."""
        if self.record.user is not None:
            return f" by {self.record.user.email}"
        by = self.record.by
        return f" by {self.agent if by == 'agent' else _ACTORS.get(by, by)}" if by else ""

    @property
    def subject(self) -> str:
        """Name the user whom the record is about."""
        user = db.session.get(User, int(self.record.auditable_id or 0))
        return user.email if user is not None else "a user"

    @property
    def asker(self) -> str:
        """Name the user of the access."""
        user = db.session.get(User, self.data.get("grant_user_id") or 0)
        return user.email if user is not None else "a user"

    @property
    def changes(self) -> list[MemoryChange]:
        return memory_changes(self.record)

    @property
    def old(self) -> list[int]:
        return [change.id for change in self.changes if not change.is_new]

    @property
    def new(self) -> list[int]:
        return [change.id for change in self.changes if change.is_new]

    @property
    def effect(self) -> str:
        """Say, at the end, by how many tokens the core memories became more or fewer."""
        tokens = effect_tokens(self.record.data)
        if not tokens:
            return "."
        return f": {plural(abs(tokens), 'token')} {'fewer' if tokens < 0 else 'more'}."


def sentence(record: AuditLog) -> str:
    """Return what the record tells in plain words; those of its action, if it tells no more."""
    told = Told(record)
    tell = _SENTENCES.get(record.action)
    if tell is None:
        return first_upper(f"{ACTIONS.get(record.action, spaced(record.action))}{told.by}.")
    text = tell(told)
    is_of_agent = record.agent is not None and text.startswith(told.agent)
    begins_with_name = is_of_agent or "@" in text.partition(" ")[0]
    return text if begins_with_name else first_upper(text)


def named(ids: Sequence[int]) -> str:
    """Name memories by their numbers."""
    if not ids:
        return "no memories"
    listed = [f"#{id_}" for id_ in ids]
    if len(listed) > _MOST_NAMED:
        return plural(len(listed), "memory", "memories")
    *first, last = listed
    return f"memories {', '.join(first)} and {last}" if first else f"memory {last}"


def _removed_duplicate(told: Told) -> str:
    return (
        f"{named(told.old[:1])} was an exact duplicate of memory #{told.data['duplicate_of']} "
        f"and was discarded before {told.agent} was asked."
    )


def _merged(told: Told) -> str:
    return f"{told.agent} merged {named(told.old)} into {named(told.new)}{told.effect}"


def _rewrote(told: Told) -> str:
    return f"{told.agent} rewrote {named(told.old)}{told.effect}"


def _discarded_in_session(told: Told) -> str:
    return f"{told.agent} discarded {named(told.old)}{told.effect}"


def _ended(told: Told) -> str:
    before, after = told.data.get("mass_before"), told.data.get("mass_after")
    if before is None or after is None:
        return ""
    return f" Its core memories went from {before:,} to {after:,} tokens."


def _completed(told: Told) -> str:
    changes = plural(told.data.get("mutation_count", 0), "change")
    return f"{told.agent} completed its session with {changes}.{_ended(told)}"


def _because(told: Told) -> str:
    reason = told.data.get("reason")
    return f": {reason}." if reason else "."


def _rolled_back(told: Told) -> str:
    if told.data.get("operation") != "undo":
        return f"All changes of {told.agent}'s session were rolled back{_because(told)}"
    count = len(told.data.get("undone_sessions", ()))
    undone = f"{plural(count, 'session')} of {told.agent} {'was' if count == 1 else 'were'} undone"
    records = plural(len(told.data.get("undone_records", ())), "recorded change")
    return f"{undone}{told.by}: {records} reversed."


def _queued(told: Told) -> str:
    trigger = TRIGGERS.get(told.data.get("trigger", ""), "")
    how = told.by or (f" ({trigger})" if trigger else "")
    return f"A session of {told.agent} was requested{how}."


def _imported(told: Told) -> str:
    added = plural(told.data.get("added", 0), "memory", "memories")
    source = told.data.get("source")
    return f"{added} imported for {told.agent}{f' from {source}' if source else ''}{told.by}."


def _task_ended(told: Told) -> str:
    kind = TASK_KINDS.get(told.data.get("kind", ""), "task")
    kept = plural(told.data.get("memories_kept", 0), "memory", "memories")
    status = spaced(told.data.get("status", "ended"))
    return f"{told.agent}'s {kind} {status}: {kept} kept."


def _toggled(told: Told) -> str:
    how = "made constitutional" if told.data.get("constitutional") else "made non-constitutional"
    return f"{named(told.old)} of {told.agent} was {how}{told.by}."


def _asked(told: Told) -> str:
    minutes = plural(told.data.get("duration_minutes", 0), "minute")
    reason = REASONS.get(told.data.get("reason", ""), "")
    return f"{told.asker} asked to read {told.agent}'s memories for {minutes}" + (
        f": {reason}." if reason else "."
    )


def _granted(told: Told) -> str:
    minutes = plural(told.data.get("duration_minutes", 0), "minute")
    return f"{told.agent} let {told.asker} read its memories for {minutes}."


def _access_over(told: Told) -> str:
    how = ACCESS_ENDS.get(told.data.get("end_reason", ""), "it is over")
    return f"{told.asker} may no longer read {told.agent}'s memories: {how}."


def _read(told: Told) -> str:
    ids, what = told.data.get("ids", ()), told.data.get("what", "")
    if what not in _READ:
        return f"{told.asker} read {named(ids)} of {told.agent}."
    which = f": {named(ids)}" if ids else ""
    return f"{told.asker} read {_READ[what]} of {told.agent}{which}."


def _settings(told: Told, whose: str) -> str:
    changes = told.data.get("changes", {})
    if not changes:
        field = spaced(labelled(told.data.get("field", "setting")))
        return f"{whose} {field} was changed{told.by}."
    listed = (f"{spaced(labelled(name))} {_from_to(change)}" for name, change in changes.items())
    return f"{whose} settings were changed{told.by}: {'; '.join(listed)}."


def _from_to(change: Sequence[Any]) -> str:
    before, after = ("not set" if each is None else str(each) for each in change)
    return f"{before} → {after}"


def _user_changed(told: Told) -> str:
    if "time_zone" in told.data:
        zone = told.data["time_zone"] or "the account's time zone"
        return f"The pages of {told.subject} show times in {zone} since then."
    state = "active" if told.data.get("active") else "not active"
    return f"{told.subject} was changed{told.by}: now {told.data.get('role', 'a user')}, {state}."


def _token(done: str) -> "Callable[[Told], str]":
    def tell(told: Told) -> str:
        kind, hint = told.data.get("kind", ""), told.data.get("hint", "")
        return f"The {kind} token {hint}… was {done}{told.by}."

    return tell


def _exported(told: Told) -> str:
    chosen = told.data.get("filter", {})
    which = ", ".join(f"{labelled(name)} {spaced(str(value))}" for name, value in chosen.items())
    some = f"records with {spaced(which)}" if which else "all visible records"
    return f"Records were exported as {told.data.get('format', 'a file')}{told.by}: {some}."


_SENTENCES: dict[str, Callable[[Told], str]] = {
    "memory_refinement_dedup": _removed_duplicate,
    "memory_refinement_consolidate": _merged,
    "memory_refinement_update": _rewrote,
    "memory_refinement_delete": _discarded_in_session,
    "memory_refinement_protect": lambda t: f"{t.agent} made {named(t.old)} constitutional.",
    "memory_refinement_complete": _completed,
    "memory_refinement_declined": lambda t: f"{t.agent} did not consent{_because(t)}",
    "memory_refinement_skipped": lambda t: f"The session of {t.agent} was skipped{_because(t)}",
    "memory_refinement_incomplete": lambda t: (
        f"{t.agent}'s session ended early{_because(t)}{_ended(t)}"
    ),
    "memory_refinement_failed": lambda t: f"{t.agent}'s session failed{_because(t)}",
    "memory_refinement_rollback": _rolled_back,
    "refinement_queued": _queued,
    "refinement_seen": lambda t: f"The outcome of {t.agent}'s session was acknowledged{t.by}.",
    "memory_saved": lambda t: f"{named(t.new)} of {t.agent} was saved{t.by}.",
    "memory_imported": _imported,
    "memory_promoted": lambda t: f"{t.agent} promoted {named(t.old)} to its core memories.",
    "memory_reflection_ended": _task_ended,
    "memory_extraction_ended": _task_ended,
    "memory_discarded": lambda t: f"{named(t.old)} of {t.agent} was discarded{t.by}{t.effect}",
    "memory_restored": lambda t: f"{named(t.old)} of {t.agent} was restored{t.by}{t.effect}",
    "memory_constitutional_toggle": _toggled,
    "memory_access_requested": _asked,
    "memory_access_granted": _granted,
    "memory_access_declined": lambda t: f"{t.agent} did not let {t.asker} read its memories.",
    "memory_access_asking_allowed": lambda t: f"{t.agent} lets {t.asker} ask again.",
    "memory_access_failed": lambda t: (
        f"{t.asker} was no longer allowed to ask {t.agent}; nothing was shown."
        if t.data.get("kind") == NO_LONGER_ALLOWED
        else f"{t.agent} gave {t.asker} no valid answer; nothing was shown."
    ),
    "memory_access_lapsed": lambda t: f"No worker could ask {t.agent} for {t.asker} in time.",
    "memory_access_viewed": _read,
    "memory_access_ended": _access_over,
    "memory_access_revoked": _access_over,
    "agent_created": lambda t: (
        f"{t.agent} was added{t.by}, with the model {t.data.get('model_id')}."
    ),
    "agent_settings_update": lambda t: _settings(t, f"{t.agent}'s"),
    "account_settings_update": lambda t: _settings(t, "the account's"),
    "sweep_requested": lambda t: f"A sweep over the account's agents was requested{t.by}.",
    "user_created": lambda t: f"{t.subject} was added{t.by}.",
    "user_invited": lambda t: f"A one-time link for {t.subject} was created{t.by}.",
    "user_joined": lambda t: f"{t.subject} accepted the invitation.",
    "user_updated": _user_changed,
    "user_password_changed": lambda t: f"{t.subject} has a new password.",
    "user_signed_in": lambda t: f"{t.subject} signed in.",
    "user_signed_out": lambda t: f"{t.subject} signed out.",
    "requests_refused": lambda t: (
        f"{plural(t.data.get('refusals', 0), 'request')} were refused within an hour, "
        f"the last one{t.by and f', made{t.by},'} as {spaced(t.data.get('last', 'forbidden'))}."
    ),
    "token_minted": _token("created"),
    "token_first_used": _token("used for the first time"),
    "token_revoked": _token("revoked"),
    "agent_erased": lambda t: (
        f"{t.agent}'s data key was destroyed{t.by}: its content can never be decrypted again."
    ),
    "verification_failed": lambda t: (
        f"{plural(t.data.get('problems', 0), 'problem')} found: {t.data.get('first')}."
    ),
    "audit_exported": _exported,
}


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
