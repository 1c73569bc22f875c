"""An agent's memories in the formats of others."""

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from refine import clock
from refine.models import AgentMemory


class Readable(NamedTuple):
    """A memory of an export, oldest first."""

    id: int
    memory_type: str
    content: str
    tags: list[str]
    created_at: datetime

    @classmethod
    def of(cls, memory: AgentMemory, content: str) -> "Readable":
        return cls(memory.id, memory.memory_type, content, list(memory.tags), memory.created_at)

    def as_row(self) -> dict[str, Any]:
        """Return it as ``POST /imports`` takes it."""
        return {
            "content": self.content,
            "memory_type": self.memory_type,
            "tags": list(self.tags),
            "created_at": clock.iso(self.created_at),
            "source_id": str(self.id),
        }


def as_json(_name: str, memories: Iterable[Readable]) -> Iterator[str]:
    yield '{"rows":['
    for number, memory in enumerate(memories):
        yield ("," if number else "") + json.dumps(memory.as_row(), ensure_ascii=False)
    yield "]}"


def as_markdown(_name: str, memories: Iterable[Readable]) -> Iterator[str]:
    """Yield an item for each memory below its type and day, which an import reads again."""
    above: tuple[str, str] = ("", "")
    for memory in memories:
        type_, day = memory.memory_type, f"{memory.created_at:%Y-%m-%d}"
        if type_ != above[0]:
            yield f"# {type_.title()}\n"
        if (type_, day) != above:
            yield f"## {day}\n"
        above = (type_, day)
        yield "- " + memory.content.replace("\n", "\n  ") + "\n"


def as_mcp(name: str, memories: Iterable[Readable]) -> Iterator[str]:
    """Yield the agent as an entity of the MCP memory server, with its memories."""
    entity = json.dumps({"type": "entity", "name": name, "entityType": "agent"}, ensure_ascii=False)
    yield entity[:-1] + ', "observations": ['
    for number, memory in enumerate(memories):
        yield ("," if number else "") + json.dumps(memory.content, ensure_ascii=False)
    yield "]}"


# The name of a format, and what writes it of an agent's name and its memories.
WRITERS: dict[str, Callable[[str, Iterable[Readable]], Iterator[str]]] = {
    "json": as_json,
    "markdown": as_markdown,
    "mcp": as_mcp,
}
