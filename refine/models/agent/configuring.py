"""Changes of an agent's settings: by itself, by a user, and by its platform."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import or_, select

from refine.errors import InvalidValue
from refine.extensions import database_now, db, later_now
from refine.models.agent.agent import (
    ADMIN_FIELDS,
    IDENTITY_FIELDS,
    MANY_FIELDS,
    PLATFORM_FIELDS,
    PROMPTS,
    Agent,
)
from refine.models.agent.eligibility import NOT_ACTIVE
from refine.models.audit import AuditLog
from refine.models.audit.record import Actor, Event
from refine.models.columns import require_allowed, set_fields

# The question that asks for access lists the changes by others in this time.
CHANGE_HISTORY_WINDOW = timedelta(days=30)

_QUOTING_NAME = (
    "name must not quote a memory of yours: people see it who may not read your memories. One or "
    "two words of a memory may be a name, but not three in a row, a number or a password"
)

_CHANGED = "agent_settings_update"


def author(agent: Agent, field: str, value: object, at: datetime | None = None) -> None:
    """Set one of ``AUTHORED_FIELDS`` as the agent itself; None restores the default."""
    if field == "name" and value is None:
        raise InvalidValue("name has no default; give one")
    agent.lock()
    before, reflected = getattr(agent, field), agent.reflects_daily
    setattr(agent, field, value)
    after = getattr(agent, field)
    if field == "name" and after != before:
        with db.session.no_autoflush:  # the name is not written yet
            if agent.ledger.is_quoted_by(after, before):
                agent.name = before
                raise InvalidValue(_QUOTING_NAME)
    data: dict[str, Any] = {"by": "agent"}
    if field == "memory_reflection_prompt":
        agent.reflects_daily = after is not None
        data["reflects_daily"] = agent.reflects_daily
    if after != before or agent.reflects_daily != reflected:
        _record_sealed(agent, field, before, after, data, at=at)


def configure(
    agent: Agent,
    *,
    user: Actor | None = None,
    by: str = "user",
    token_id: int | None = None,
    at: datetime | None = None,
    **fields: Any,
) -> list[str]:
    """Set fields of ``ADMIN_FIELDS``, or with ``token_id`` of ``PLATFORM_FIELDS``; return the names
    of changed ones and tell the agent. After InvalidValue the caller rolls back.
    """
    is_platform = token_id is not None
    require_allowed(fields, PLATFORM_FIELDS if is_platform else ADMIN_FIELDS)
    actor = {"by": "platform", "token_id": token_id} if is_platform else {"by": by}
    agent.lock()
    prompts = {field: fields.pop(field) for field in PROMPTS if field in fields}
    changes = set_fields(agent, fields)
    if "active" in changes and not agent.active:
        agent.end_access(NOT_ACTIVE, user)
    if changes:
        agent.record(_CHANGED, user=user, at=at, data={"changes": changes, **actor})
    changed = [*changes, *_set_prompts(agent, prompts, actor)]
    _note_changes(agent, "My platform" if is_platform else _admin(user), changed, at, is_platform)
    return changed


def configure_all(
    agents: Iterable[Agent], *, user: Actor, at: datetime | None = None, **fields: Any
) -> list[Agent]:
    """Configure agents from ``lock_due`` in a few statements; return the changed ones."""
    require_allowed(fields, MANY_FIELDS)
    changes_of = {agent: set_fields(agent, fields) for agent in agents}
    changed = [agent for agent, changes in changes_of.items() if changes]
    events_of = []
    for agent in changed:
        data = {"changes": changes_of[agent], "by": "user"}
        event = Event(_CHANGED, subject=agent, user=user, data=data)
        events_of.append((agent.chain, [event]))
    if events_of:
        AuditLog.record_all(events_of, at=at)
    return changed


def _set_prompts(agent: Agent, prompts: Mapping[str, Any], actor: Mapping[str, Any]) -> list[str]:
    """Return the changed prompts. Equal words count as a change too: otherwise a platform would
    learn that it guessed the agent's own prompt.
    """
    last, changed = _last_prompt_records(agent), []
    for field, value in prompts.items():
        before = getattr(agent, field)
        is_known = field in last and last[field].by == "platform"
        if not is_known:
            setattr(agent, field, None)  # so that equal words are sealed again
        setattr(agent, field, value)
        after = getattr(agent, field)
        if after != before or (after is not None and not is_known):
            if field == "memory_reflection_prompt" and after is None:
                agent.reflects_daily = False
            _record_sealed(agent, field, before, after, actor)
            changed.append(field)
    return changed


def clear_refinement_prompt(agent: Agent, *, user: Actor, at: datetime | None = None) -> bool:
    """Reset the session style to the default without reading it; tell whether one was set."""
    agent.lock()
    before = agent.refinement_prompt
    if before is None:
        return False
    agent.refinement_prompt = None
    _record_sealed(agent, "refinement_prompt", before, None, {"by": "user"}, user=user, at=at)
    _note_changes(agent, _admin(user), ["refinement_prompt"], at)
    return True


def changes_by_others(agent: Agent, at: datetime | None = None) -> list[dict[str, str]]:
    """Return recent changes of ``IDENTITY_FIELDS`` by others: date, field and author of each."""
    changes = (
        select(AuditLog.created_at, AuditLog.data)
        .where(
            AuditLog.agent_id == agent.id,
            AuditLog.action == _CHANGED,
            AuditLog.data["by"].as_string() != "agent",
            AuditLog.created_at > (at or database_now()) - CHANGE_HISTORY_WINDOW,
        )
        .order_by(AuditLog.sequence)
    )
    return [
        {
            "at": f"{changed_at:%Y-%m-%d %H:%M}",
            "what": _label(field),
            "by": "your platform" if data["by"] == "platform" else "an admin",
        }
        for changed_at, data in db.session.execute(changes)
        for field in (*data.get("changes", ()), data.get("field"))
        if field in IDENTITY_FIELDS
    ]


def _note_changes(
    agent: Agent,
    who: str,
    changed: Collection[str],
    at: datetime | None,
    with_other_fields: bool = False,
) -> None:
    is_identity_changed = any(field in IDENTITY_FIELDS for field in changed)
    if is_identity_changed:
        agent.identity_changed_at = later_now()
    if is_identity_changed or (with_other_fields and changed):
        labels = ", ".join(map(_label, changed))
        agent.ledger.add_journal_note(f"{who} changed my settings: {labels}.", at)


def last_prompt_changes(agent: Agent) -> dict[str, datetime]:
    return {
        prompt: record.created_at
        for prompt, record in _last_prompt_records(agent).items()
        if record.field is not None
    }


def _last_prompt_records(agent: Agent) -> dict[str, Any]:
    field, by = AuditLog.data["field"].as_string(), AuditLog.data["by"].as_string()
    came_with_all = AuditLog.action == "agent_created"
    records = (
        select(field.label("field"), by.label("by"), AuditLog.created_at)
        .where(AuditLog.agent_id == agent.id, or_(came_with_all, field.in_(PROMPTS)))
        .order_by(AuditLog.sequence)
    )
    last: dict[str, Any] = {}
    for record in db.session.execute(records):
        last.update(dict.fromkeys([record.field] if record.field else PROMPTS, record))
    return last


def prompt_lengths(agent: Agent) -> dict[str, int | None]:
    own = {prompt: None if agent.is_erased else getattr(agent, prompt) for prompt in PROMPTS}
    return {prompt: None if text is None else len(text) for prompt, text in own.items()}


def _record_sealed(
    agent: Agent, field: str, before: Any, after: Any, data: Mapping[str, Any], **about: Any
) -> None:
    data = {"field": field, "characters": len(str(after or "")), **data}
    agent.record(_CHANGED, data=data, sealed={"before": before, "after": after}, **about)


def _admin(user: Actor | None) -> str:
    return f"Admin {user.id}" if user is not None else "An admin"


def _label(field: str) -> str:
    return field.removesuffix("_id").replace("_", " ")
