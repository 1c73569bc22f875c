"""What records say of memories, before and after."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from refine.models import AuditLog
from refine.models.ledger import images_in
from refine.web.presenting import before_and_after

_Image = Mapping[str, Any]


class MemoryChange(NamedTuple):
    """A row of a record's table: a memory before and after, each cell as "before → after"."""

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
    """Return the ids of the core memories that a session's step changed."""
    if not record.data.get("operation"):
        return []
    memories = images_in(record.data)
    return [memory["id"] for memory in memories if memory["after"]["memory_type"] == "core"]
