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
class RecordFacts:
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
    facts = RecordFacts(record)
    tell = _SENTENCES.get(record.action)
    if tell is None:
        return first_upper(f"{ACTIONS.get(record.action, spaced(record.action))}{facts.by}.")
    text = tell(facts)
    is_of_agent = record.agent is not None and text.startswith(facts.agent)
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


def _removed_duplicate(facts: RecordFacts) -> str:
    return (
        f"{named(facts.old[:1])} was an exact duplicate of memory #{facts.data['duplicate_of']} "
        f"and was discarded before {facts.agent} was asked."
    )


def _merged(facts: RecordFacts) -> str:
    return f"{facts.agent} merged {named(facts.old)} into {named(facts.new)}{facts.effect}"


def _rewrote(facts: RecordFacts) -> str:
    return f"{facts.agent} rewrote {named(facts.old)}{facts.effect}"


def _discarded_in_session(facts: RecordFacts) -> str:
    return f"{facts.agent} discarded {named(facts.old)}{facts.effect}"


def _ended(facts: RecordFacts) -> str:
    before, after = facts.data.get("mass_before"), facts.data.get("mass_after")
    if before is None or after is None:
        return ""
    return f" Its core memories went from {before:,} to {after:,} tokens."


def _completed(facts: RecordFacts) -> str:
    changes = plural(facts.data.get("mutation_count", 0), "change")
    return f"{facts.agent} completed its session with {changes}.{_ended(facts)}"


def _because(facts: RecordFacts) -> str:
    reason = facts.data.get("reason")
    return f": {reason}." if reason else "."


def _rolled_back(facts: RecordFacts) -> str:
    if facts.data.get("operation") != "undo":
        return f"All changes of {facts.agent}'s session were rolled back{_because(facts)}"
    count = len(facts.data.get("undone_sessions", ()))
    undone = f"{plural(count, 'session')} of {facts.agent} {'was' if count == 1 else 'were'} undone"
    records = plural(len(facts.data.get("undone_records", ())), "recorded change")
    return f"{undone}{facts.by}: {records} reversed."


def _queued(facts: RecordFacts) -> str:
    trigger = TRIGGERS.get(facts.data.get("trigger", ""), "")
    how = facts.by or (f" ({trigger})" if trigger else "")
    return f"A session of {facts.agent} was requested{how}."


def _imported(facts: RecordFacts) -> str:
    added = plural(facts.data.get("added", 0), "memory", "memories")
    source = facts.data.get("source")
    return f"{added} imported for {facts.agent}{f' from {source}' if source else ''}{facts.by}."


def _task_ended(facts: RecordFacts) -> str:
    kind = TASK_KINDS.get(facts.data.get("kind", ""), "task")
    kept = plural(facts.data.get("memories_kept", 0), "memory", "memories")
    status = spaced(facts.data.get("status", "ended"))
    return f"{facts.agent}'s {kind} {status}: {kept} kept."


def _toggled(facts: RecordFacts) -> str:
    how = "made constitutional" if facts.data.get("constitutional") else "made non-constitutional"
    return f"{named(facts.old)} of {facts.agent} was {how}{facts.by}."


def _asked(facts: RecordFacts) -> str:
    minutes = plural(facts.data.get("duration_minutes", 0), "minute")
    reason = REASONS.get(facts.data.get("reason", ""), "")
    return f"{facts.asker} asked to read {facts.agent}'s memories for {minutes}" + (
        f": {reason}." if reason else "."
    )


def _granted(facts: RecordFacts) -> str:
    minutes = plural(facts.data.get("duration_minutes", 0), "minute")
    return f"{facts.agent} let {facts.asker} read its memories for {minutes}."


def _access_over(facts: RecordFacts) -> str:
    how = ACCESS_ENDS.get(facts.data.get("end_reason", ""), "it is over")
    return f"{facts.asker} may no longer read {facts.agent}'s memories: {how}."


def _read(facts: RecordFacts) -> str:
    ids, what = facts.data.get("ids", ()), facts.data.get("what", "")
    if what not in _READ:
        return f"{facts.asker} read {named(ids)} of {facts.agent}."
    which = f": {named(ids)}" if ids else ""
    return f"{facts.asker} read {_READ[what]} of {facts.agent}{which}."


def _settings(facts: RecordFacts, whose: str) -> str:
    changes = facts.data.get("changes", {})
    if not changes:
        field = spaced(labelled(facts.data.get("field", "setting")))
        return f"{whose} {field} was changed{facts.by}."
    listed = (f"{spaced(labelled(name))} {_from_to(change)}" for name, change in changes.items())
    return f"{whose} settings were changed{facts.by}: {'; '.join(listed)}."


def _from_to(change: Sequence[Any]) -> str:
    before, after = ("not set" if each is None else str(each) for each in change)
    return f"{before} → {after}"


def _user_changed(facts: RecordFacts) -> str:
    if "time_zone" in facts.data:
        zone = facts.data["time_zone"] or "the account's time zone"
        return f"The pages of {facts.subject} show times in {zone} since then."
    state = "active" if facts.data.get("active") else "not active"
    return (
        f"{facts.subject} was changed{facts.by}: now {facts.data.get('role', 'a user')}, {state}."
    )


def _token(done: str) -> "Callable[[RecordFacts], str]":
    def tell(facts: RecordFacts) -> str:
        kind, hint = facts.data.get("kind", ""), facts.data.get("hint", "")
        return f"The {kind} token {hint}… was {done}{facts.by}."

    return tell


def _exported(facts: RecordFacts) -> str:
    chosen = facts.data.get("filter", {})
    which = ", ".join(f"{labelled(name)} {spaced(str(value))}" for name, value in chosen.items())
    some = f"records with {spaced(which)}" if which else "all visible records"
    return f"Records were exported as {facts.data.get('format', 'a file')}{facts.by}: {some}."


_SENTENCES: dict[str, Callable[[RecordFacts], str]] = {
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
