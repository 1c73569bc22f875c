"""Changes of an agent's settings: by itself, by a user, and by its platform."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Self

from sqlalchemy import BigInteger, Select, bindparam, or_, select

from refine.errors import InvalidValue
from refine.extensions import database_now, db, instant, later_now
from refine.extensions.statements import plain_query
from refine.models.agent.eligibility import NOT_ACTIVE
from refine.models.agent.settings import (
    ADMIN_FIELDS,
    IDENTITY_FIELDS,
    MANY_FIELDS,
    PLATFORM_FIELDS,
    PROMPTS,
    AgentSettings,
)
from refine.models.audit import AuditLog
from refine.models.audit.chain import Actor
from refine.models.audit.record import Event
from refine.models.people.recording import to_record
from refine.models.settings_change import Changes, require_allowed, set_fields

# The question that asks for access lists the changes by others in this time.
CHANGE_HISTORY_WINDOW = timedelta(days=30)

_QUOTING_NAME = (
    "name must not quote a memory of yours: people see it who may not read your memories. One or "
    "two words of a memory may be a name, but not three in a row, a number or a password"
)

_CHANGED = "agent_settings_update"


class _Written(NamedTuple):
    """A prompt, its author and date; ``prompt`` is None for those an agent came with."""

    prompt: str | None
    by: str | None
    at: datetime


class Configurable(AgentSettings):
    """The ways to change an agent's settings, each with its record."""

    def author(self, field: str, value: object, at: datetime | None = None) -> None:
        """Set a field of ``AUTHORED_FIELDS`` as the agent itself; None restores the default.

        Writing a ``memory_reflection_prompt`` turns the daily reflection on, the default turns it
        off. Recorded as ``agent_settings_update``, the values sealed. InvalidValue changes nothing;
        it refuses a name that quotes a memory.
        """
        if field == "name" and value is None:
            raise InvalidValue("name has no default; give one")
        self.lock()
        before, reflected = getattr(self, field), self.reflects_daily
        setattr(self, field, value)
        after = getattr(self, field)
        if field == "name" and after != before:
            self._refuse_quotation(before)
        data: dict[str, Any] = {"by": "agent"}
        if field == "memory_reflection_prompt":
            self.reflects_daily = after is not None
            data["reflects_daily"] = self.reflects_daily
        if after != before or self.reflects_daily != reflected:
            self._record_sealed(field, before, after, data, at=at)

    def _refuse_quotation(self, before: str) -> None:
        """Raise InvalidValue if the new name quotes a memory; the name is then as before."""
        with db.session.no_autoflush:  # the name is not written yet
            if self.ledger.is_quoted_by(self.name, before):
                self.name = before
                raise InvalidValue(_QUOTING_NAME)

    def configure(
        self,
        *,
        user: Actor | None = None,
        by: str = "user",
        at: datetime | None = None,
        **fields: Any,
    ) -> list[str]:
        """Set fields of ``ADMIN_FIELDS`` as an admin; return the names of those that changed.

        Recorded as ``agent_settings_update``; ``by`` names the actor in its data, if it was
        not a user. InvalidValue, also for any other field, changes nothing. A new model changes the
        agent's identity (see ``_mark_identity_change``).
        """
        require_allowed(fields, ADMIN_FIELDS)
        self.lock()
        changes = self._set(fields, user)
        if changes:
            self._record_settings(user=user, at=at, data={"changes": changes, "by": by})
        if self._mark_identity_change(changes):
            self._note_changes_in_journal(_admin(user), changes, at)
        return list(changes)

    def _set(self, fields: Mapping[str, Any], user: Actor | None = None) -> Changes:
        """Set the fields and return the changes; deactivating the agent ends who may read it."""
        changes = set_fields(self, fields)
        if "active" in changes and not self.active:
            self.end_access(NOT_ACTIVE, user)
        return changes

    @classmethod
    def configure_all(
        cls, agents: Iterable[Self], *, user: Actor, at: datetime | None = None, **fields: Any
    ) -> list[Self]:
        """Set fields of ``MANY_FIELDS`` as ``configure`` does; return the agents that changed.

        The agents are as ``lock_due`` returns them. Takes a few statements for all.
        """
        require_allowed(fields, MANY_FIELDS)
        changes_of = {agent: set_fields(agent, fields) for agent in agents}
        changed = [agent for agent, changes in changes_of.items() if changes]
        events_of = [
            (agent.chain, [agent._settings_event(changes_of[agent], user)]) for agent in changed
        ]
        if events_of:
            AuditLog.record_in_chains(events_of, at=at)
        return changed

    def _settings_event(self, changes: Changes, user: Actor) -> Event:
        data = {"changes": changes, "by": "user"}
        return to_record(_CHANGED, subject=("Agent", self.id), user=user, data=data)

    def configure_by_platform(self, actor: Mapping[str, Any], **fields: Any) -> list[str]:
        """Set fields of ``PLATFORM_FIELDS``; return the names of those that changed.

        Recorded as ``agent_settings_update``; ``actor`` names the platform's token in the records.
        The agent is told in its journal. After InvalidValue the caller rolls back. A new name,
        model or prompt changes the agent's identity, as in ``configure``.
        """
        require_allowed(fields, PLATFORM_FIELDS)
        self.lock()
        prompts = {field: fields.pop(field) for field in PROMPTS if field in fields}
        changes = self._set(fields)
        if changes:
            self._record_settings(data={"changes": changes, **actor})
        changed = [*changes, *self._set_platform_prompts(prompts, actor)]
        self._mark_identity_change(changed)
        if changed:
            self._note_changes_in_journal("My platform", changed)
        return changed

    def _set_platform_prompts(
        self, prompts: Mapping[str, Any], actor: Mapping[str, Any]
    ) -> list[str]:
        """Set prompts as the platform, each with a sealed record; return which changed.

        One that the platform did not write last counts as changed even by the same words:
        otherwise the platform, or a reader of the records, would learn that it guessed them.
        Removing the ``memory_reflection_prompt`` ends the daily reflection; only the agent itself
        can turn it on.
        """
        before = {field: getattr(self, field) for field in prompts}
        unknown = prompts.keys() - self._prompts_last_written_by("platform")
        for field, value in prompts.items():
            if field in unknown:
                setattr(self, field, None)  # so that equal words are sealed again
            setattr(self, field, value)
        after = {field: getattr(self, field) for field in prompts}
        if after.get("memory_reflection_prompt", "") is None:
            self.reflects_daily = False
        changed = [
            field
            for field, value in after.items()
            if value != before[field] or (value is not None and field in unknown)
        ]
        for field in changed:
            self._record_sealed(field, before[field], after[field], actor)
        return changed

    def clear_refinement_prompt(self, *, user: Actor, at: datetime | None = None) -> bool:
        """Reset the session style to the default without reading it; tell whether one was set."""
        self.lock()
        before = self.refinement_prompt
        if before is None:
            return False
        self.refinement_prompt = None
        self._record_sealed("refinement_prompt", before, None, {"by": "user"}, user=user, at=at)
        self._mark_identity_change(["refinement_prompt"])
        self._note_changes_in_journal(_admin(user), ["refinement_prompt"], at)
        return True

    def changes_by_others(self, at: datetime | None = None) -> list[dict[str, str]]:
        """Return the changes of ``IDENTITY_FIELDS`` that were recent now or ``at``, but its own.

        Each as its date, what was changed, and who changed it: a platform or an admin.
        """
        since = (at or database_now()) - CHANGE_HISTORY_WINDOW
        return [
            {
                "at": f"{record.created_at:%Y-%m-%d %H:%M}",
                "what": _label(field),
                "by": "your platform" if record.data["by"] == "platform" else "an admin",
            }
            for record in _changes_by_others().rows(agent_id=self.id, since=since)
            for field in (*record.data.get("changes", ()), record.data.get("field"))
            if field in IDENTITY_FIELDS
        ]

    def _mark_identity_change(self, changed: Iterable[str]) -> bool:
        """Set when somebody else last changed the identity, if this changes it; tell whether.

        For ``IDENTITY_CHANGE_WAIT`` from then, nobody may request access.
        """
        if is_change := any(field in IDENTITY_FIELDS for field in changed):
            self.identity_changed_at = later_now()
        return is_change

    def _note_changes_in_journal(
        self, who: str, changed: Iterable[str], at: datetime | None = None
    ) -> None:
        labels = ", ".join(map(_label, changed))
        self.ledger.add_journal_note(f"{who} changed my settings: {labels}.", at)

    def last_prompt_changes(self) -> dict[str, datetime]:
        """Return when each of ``PROMPTS`` was last changed; unchanged ones are left out."""
        return {
            prompt: written.at
            for prompt, written in self._last_written_prompts().items()
            if written.prompt is not None
        }

    def _prompts_last_written_by(self, who: str) -> set[str]:
        """Return which of ``PROMPTS`` were last written by ``who``, counting what it came with."""
        last = self._last_written_prompts()
        return {prompt for prompt, written in last.items() if written.by == who}

    def _last_written_prompts(self) -> "dict[str, _Written]":
        """Return who last wrote each of ``PROMPTS``, and when."""
        last: dict[str, _Written] = {}
        for about in db.session.execute(self._prompt_records()):
            written = _Written(*about)
            last.update(dict.fromkeys([written.prompt] if written.prompt else PROMPTS, written))
        return last

    def _prompt_records(self) -> Select[Any]:
        """Return a query for the records that tell who wrote which prompt, oldest first."""
        field, by = AuditLog.data["field"].as_string(), AuditLog.data["by"].as_string()
        of_all = AuditLog.action == "agent_created"
        return (
            select(field, by, AuditLog.created_at)
            .where(AuditLog.agent_id == self.id, or_(of_all, field.in_(PROMPTS)))
            .order_by(AuditLog.sequence)
        )

    def _record_sealed(
        self, field: str, before: Any, after: Any, data: Mapping[str, Any], **about: Any
    ) -> None:
        """Record a change of one field, its values sealed: the data tells only how long it is."""
        data = {"field": field, "characters": len(str(after or "")), **data}
        self._record_settings(data=data, sealed={"before": before, "after": after}, **about)

    def _record_settings(self, **about: Any) -> None:
        self.record(_CHANGED, subject=("Agent", self.id), **about)


@plain_query
def _changes_by_others() -> Select[*tuple[Any, ...]]:
    """Return the query for records of changes."""
    return (
        select(AuditLog.created_at, AuditLog.data)
        .where(
            AuditLog.agent_id == bindparam("agent_id", type_=BigInteger),
            AuditLog.action == _CHANGED,
            AuditLog.data["by"].as_string() != "agent",
            AuditLog.created_at > instant("since"),
        )
        .order_by(AuditLog.sequence)
    )


def _admin(user: Actor | None) -> str:
    """Return how the journal names an admin: by number, never by what somebody typed."""
    return f"Admin {user.id}" if user is not None else "An admin"


def _label(field: str) -> str:
    return field.removesuffix("_id").replace("_", " ")
