"""Files to import, what a reader makes of them, and what an agent keeps."""

import io
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from refine.extensions import db
from refine.models import Agent, AgentMemory
from refine.transfer.importing import Report, import_memories, rows_of
from refine.transfer.own import FORMAT, file_lines, full_lines
from refine.transfer.rows import ALL, BadRow, Incoming, Row, Wanted
from refine.transfer.sources import Source

FIXTURES = Path(__file__).parent / "fixtures"

MANIFEST = {"format": FORMAT, "version": 1, "contents": True, "origin": "0123456789abcdef"}


def read(
    content: bytes | str, format_: str | None = None, wanted: Wanted = ALL, name: str = "file"
) -> list[Row]:
    return list(rows_of([source(content, name)], format_, wanted))


def reading(content: bytes | str, format_: str) -> Callable[[], Iterable[Row]]:
    """What an import calls for each pass."""
    return lambda: rows_of([source(content)], format_)


def source(content: bytes | str, name: str = "file") -> Source:
    return Source(name, stream(content), is_alone=True)


def bring(owner: Agent, file: bytes | str, format_: str = "refine", **options: Any) -> Report:
    """Import a file into an agent."""
    return import_memories(owner, reading(file, format_), source=format_, **options)


def stream(content: bytes | str) -> io.BytesIO:
    return io.BytesIO(content.encode() if isinstance(content, str) else content)


def fixture(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


def memories(rows: Iterable[Row]) -> list[Incoming]:
    return [row for row in rows if isinstance(row, Incoming)]


def bad(rows: Iterable[Row]) -> list[tuple[str, str]]:
    return [(row.place, row.reason) for row in rows if isinstance(row, BadRow)]


def own_row(**fields: Any) -> dict[str, Any]:
    """A row of Refine's own format, without its digest."""
    usual = {
        "id": 1,
        "memory_type": "core",
        "constitutional": False,
        "tags": [],
        "created_at": "2026-01-02T03:04:05.000006+00:00",
        "discarded_at": None,
        "source": None,
        "source_id": None,
        "content": "a memory",
        "extra": None,
    }
    return {**usual, **fields}


def own_file(*rows: Mapping[str, Any], **manifest: Any) -> str:
    return "\n".join(file_lines({**MANIFEST, **manifest}, rows)) + "\n"


def all_of(owner: Agent) -> list[AgentMemory]:
    """Every memory of the agent, discarded ones included, as the database has it."""
    db.session.rollback()
    mine = db.select(AgentMemory).where(AgentMemory.agent_id == owner.id)
    return list(db.session.scalars(mine.order_by(AgentMemory.id)))


def contents(owner: Agent) -> list[str]:
    return [memory.content for memory in all_of(owner)]


def exported(owner: Agent) -> str:
    """A full export of the agent."""
    opened = (
        (memory, {"content": memory.content, "extra": memory.extra}) for memory in all_of(owner)
    )
    return "\n".join(full_lines(owner, opened))
