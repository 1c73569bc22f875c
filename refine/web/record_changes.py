"""The subjects of records, and memories before and after them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from flask import url_for

from refine.models import AuditLog
from refine.models.ledger.image import images_in
from refine.web.links import url_in_account
from refine.web.presenting import before_and_after

_Image = Mapping[str, Any]


class MemoryChange(NamedTuple):
    id: int
    memory_type: str
    tokens: str
    state: str
    constitutional: str
    tags: str
    is_new: bool


def memory_changes(record: AuditLog) -> list[MemoryChange]:
    return [_memory_change(memory) for memory in images_in(record.data)]


def _memory_change(memory: _Image) -> MemoryChange:
    before, after = memory["before"], memory["after"]
    tokens = before_and_after(*(each["token_estimate"] for each in (before, after) if each))

    def change(word: Callable[[_Image], str]) -> str:
        words = [word(image) for image in (before, after) if image is not None]
        return " → ".join(dict.fromkeys(words))

    state = change(lambda image: "kept" if image["discarded_at"] is None else "discarded")
    return MemoryChange(
        id=memory["id"],
        memory_type=after["memory_type"],
        tokens=tokens,
        state=state if before else f"created, {state}",
        constitutional=change(lambda image: "yes" if image["constitutional"] else "no"),
        tags=change(lambda image: ", ".join(image["tags"]) or "none"),
        is_new=before is None,
    )


def changed_core_ids(record: AuditLog) -> list[int]:
    if not record.data.get("operation"):
        return []
    memories = images_in(record.data)
    return [memory["id"] for memory in memories if memory["after"]["memory_type"] == "core"]


_NAMES = {
    "AccessGrant": "access",
    "Account": "account",
    "Agent": "agent",
    "AgentMemory": "memory",
    "ApiToken": "token",
    "Endpoint": "webhook",
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


def subject_of(record: AuditLog) -> tuple[str, str | None] | None:
    kind = record.auditable_type
    if kind is None:
        return None
    url = _URLS[kind](record) if kind in _URLS else None
    number = "#" if str(record.auditable_id).isdigit() else ""
    return f"{_NAMES[kind]} {number}{record.auditable_id}", url
