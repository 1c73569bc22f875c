"""Refine's own format: JSON Lines between two lines that say what they hold.

The first line is the manifest: format, version, agent, with or without contents. Then comes a line
for each memory with a SHA-256 digest of its other fields. The closing line has the number of
memories and a digest of their digests, so that altered and missing lines are detected.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, BinaryIO

from refine import clock
from refine.errors import InvalidValue
from refine.extensions import canonical_json
from refine.models import Agent, AgentMemory
from refine.models.ledger.memory import NOTE
from refine.transfer.json_lines import line_object, numbered_lines
from refine.transfer.rows import SOURCES, BadRow, Incoming, Row, is_opaque, plain_id, time_in

VERSION = 1
FORMAT = "refine-memories"
SOURCE = "refine"

_METADATA = ("id", "memory_type", "constitutional", "tags", "token_estimate", "source")
_TIMES = ("created_at", "recorded_at", "updated_at", "discarded_at")
_ID = re.compile(r"[0-9]{1,18}")  # within PostgreSQL's bigint
_ORIGIN = re.compile(r"[0-9a-f]{16}")


# -- writing --------------------------------------------------------------------------------------


def metadata_lines(agent: Agent, memories: Iterable[AgentMemory]) -> Iterator[str]:
    """Yield the lines of an export without contents: only what an admin may see."""
    return file_lines(
        _manifest(agent, has_contents=False), (_metadata(memory) for memory in memories)
    )


def full_lines(
    agent: Agent, memories: Iterable[tuple[AgentMemory, Mapping[str, Any]]]
) -> Iterator[str]:
    """Yield the lines of a full export: each memory with its ``content`` and ``extra``."""
    rows = (
        {**_metadata(memory), "source_id": memory.source_id, **contents}
        for memory, contents in memories
    )
    return file_lines(_manifest(agent, has_contents=True), rows)


def file_lines(manifest: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield canonical_json(manifest)
    count, total_digest = 0, hashlib.sha256()
    for row in rows:
        digest = _digest(row)
        count += 1
        total_digest.update(digest.encode())
        yield canonical_json({**row, "sha256": digest})
    yield canonical_json({"end": FORMAT, "count": count, "sha256": total_digest.hexdigest()})


def origin_of(agent: Agent) -> str:
    """Return what tells the agent apart from all others, and reveals nothing about it."""
    return agent.data_key().mac("", "transfer.origin")[:16]


def own_id(origin: str, source_id: str | None) -> int | None:
    """Return the id that a memory of a full export has in the agent with this origin, if any."""
    of, _, id_ = (source_id or "").partition("-")
    return int(id_) if of == origin and _ID.fullmatch(id_) else None


def _manifest(agent: Agent, *, has_contents: bool) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "contents": has_contents,
        "agent_id": agent.id,
        # for whoever imports it: of an erased agent there are no contents, and no key to tell it
        **({"origin": origin_of(agent)} if has_contents else {}),
        "exported_at": clock.iso(clock.now()),
    }


def _metadata(memory: AgentMemory) -> dict[str, Any]:
    return {
        **{field: getattr(memory, field) for field in _METADATA},
        "tags": list(memory.tags),
        **{field: clock.iso(getattr(memory, field)) for field in _TIMES},
        "session_id": str(memory.session_id) if memory.session_id else None,
    }


def _digest(row: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(row).encode()).hexdigest()


# -- reading --------------------------------------------------------------------------------------


def read(stream: BinaryIO) -> Iterator[Row]:
    """Yield the memories, and a BadRow for each altered, missing or contentless one."""
    numbered = numbered_lines(stream)
    try:
        origin = _origin_of(next(numbered, (1, b"null"))[1])
    except InvalidValue as error:
        yield BadRow("line 1", str(error))
        return
    count, total_digest, end = 0, hashlib.sha256(), None
    for number, line in numbered:
        if end is not None:
            yield BadRow(f"line {number}", "comes after the closing line")
            continue
        try:
            row = line_object(line)
            if row.get("end") == FORMAT:
                end = row
                continue
            count += 1
            total_digest.update(str(row.get("sha256")).encode())
            yield _memory(f"line {number}", row, origin)
        except InvalidValue as error:
            yield BadRow(f"line {number}", str(error))
    if end is None:
        yield BadRow("file", "has no closing line: memories may be missing at its end")
    elif (end.get("count"), end.get("sha256")) != (count, total_digest.hexdigest()):
        yield BadRow("file", "does not match its closing line: lines are missing, added or moved")


def _origin_of(line: bytes | None) -> str:
    manifest = line_object(line)
    if manifest.get("format") != FORMAT:
        raise InvalidValue(f"is not the manifest of an export (format {FORMAT})")
    if manifest.get("version") != VERSION or isinstance(manifest.get("version"), bool):
        raise InvalidValue(
            f"has another version of the format; this Refine reads version {VERSION}"
        )
    if manifest.get("contents") is not True:
        raise InvalidValue("is of an export without contents: there is nothing to import")
    origin = manifest.get("origin")
    if not isinstance(origin, str) or not _ORIGIN.fullmatch(origin):
        raise InvalidValue("has no origin")
    return origin


def _memory(place: str, row: dict[str, Any], origin: str) -> Incoming:
    digest = row.pop("sha256", None)
    if digest != _digest(row):
        raise InvalidValue("was altered: its digest does not match")
    id_ = plain_id(row)
    if id_ is None:
        raise InvalidValue("has no id")
    source, source_id = _text(row, "source"), _text(row, "source_id")
    # keep the original source, so that importing from there again still adds nothing
    has_other_source = source in (*SOURCES, NOTE) and source_id is not None and is_opaque(source_id)
    return Incoming(
        place=place,
        content=_text(row, "content") or "",
        memory_type=_text(row, "memory_type") or "",
        tags=_tags(row),
        constitutional=_flag(row, "constitutional"),
        created_at=_time(row, "created_at"),
        discarded_at=time_in(row, "discarded_at"),
        origin=origin,
        source=source if has_other_source or source == NOTE else None,
        source_id=source_id if has_other_source else f"{origin}-{id_}",
        extra=_text(row, "extra"),
    )


def _text(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    if not isinstance(value, str | None):
        raise InvalidValue(f"{name} is not text")
    return value


def _flag(row: Mapping[str, Any], name: str) -> bool:
    value = row.get(name)
    if not isinstance(value, bool):
        raise InvalidValue(f"{name} is neither true nor false")
    return value


def _tags(row: Mapping[str, Any]) -> tuple[str, ...]:
    tags = row.get("tags")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise InvalidValue("tags is not a list of strings")
    return tuple(tags)


def _time(row: Mapping[str, Any], name: str) -> datetime:
    at = time_in(row, name)
    if at is None:
        raise InvalidValue(f"has no {name}")
    return at
