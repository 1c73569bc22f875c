"""What a record is about, by name, and where that is shown."""

from collections.abc import Callable
from typing import NamedTuple

from flask import url_for

from refine.models import AuditLog
from refine.web.links import url_in_account

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
        "memory.page", agent_id=record.agent_id, memory_id=record.auditable_id
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
