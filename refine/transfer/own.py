"""Refine's own format: a manifest, memories with digests, and a line with the digest of these."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any

from sqlalchemy import select

from refine import clock
from refine.errors import InvalidValue
from refine.extensions import canonical_json, db
from refine.models import Agent, AgentMemory
from refine.models.ledger.memory import NOTE
from refine.rules.received_json import only
from refine.transfer.rows import (
    BadRow,
    Incoming,
    Row,
    Wanted,
    is_opaque,
    json_object,
    plain_id,
    time_in,
)
from refine.transfer.sources import Source, line_values

VERSION = 1
FORMAT = "refine-memories"
SOURCE = "refine"
PAGE_MEMORIES = 500

_METADATA = ("id", "memory_type", "constitutional", "tags", "token_estimate", "source")
_TIMES = ("created_at", "spans_until", "recorded_at", "updated_at", "discarded_at")

_ID = re.compile(r"[0-9]{1,18}")  # within PostgreSQL's bigint
_ORIGIN = re.compile(r"[0-9a-f]{16}")
# The name of a format, or of Refine's own notes.
_SOURCE = re.compile(r"[a-z][a-z0-9]{1,19}")
_TEXT = (str, NoneType)


def metadata_lines(agent: Agent, memories: Iterable[AgentMemory]) -> Iterator[str]:
    return file_lines(_manifest(agent, has_contents=False), map(_metadata, memories))


def full_lines(
    agent: Agent, memories: Iterable[tuple[AgentMemory, Mapping[str, Any]]]
) -> Iterator[str]:
    rows = (
        {**_metadata(memory), "source_id": memory.source_id, **contents}
        for memory, contents in memories
    )
    return file_lines(_manifest(agent, has_contents=True), rows)


def file_lines(manifest: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield canonical_json(manifest)
    count, total_digest = 0, hashlib.sha256()
    for row in rows:
        digest = _digest_of(row)
        count += 1
        total_digest.update(digest.encode())
        yield canonical_json({**row, "sha256": digest})
    yield canonical_json({"end": FORMAT, "count": count, "sha256": total_digest.hexdigest()})


def origin_of(agent: Agent) -> str:
    """Return a keyed hash that identifies the agent and reveals nothing about it."""
    return agent.data_key().mac("", "transfer.origin")[:16]


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


def _digest_of(row: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(row).encode()).hexdigest()


def pages_of(agent: Agent) -> Iterator[Sequence[AgentMemory]]:
    """Yield the memories in pages; no transaction is open while the output is read."""
    all_memories = (
        select(AgentMemory).where(AgentMemory.agent_id == agent.id).order_by(AgentMemory.id)
    )
    after = 0
    while page := db.session.scalars(
        all_memories.where(AgentMemory.id > after).limit(PAGE_MEMORIES)
    ).all():
        after = page[-1].id
        for memory in page:
            db.session.expunge(memory)  # keeps its loaded values after the commit
        db.session.commit()
        yield page


def recognizes(source: Source) -> bool:
    return isinstance(source.sample, dict) and source.sample.get("format") == FORMAT


def read(source: Source, _wanted: Wanted) -> Iterator[Row]:
    numbered = source.lines()
    try:
        _, first = next(numbered, (1, b"null"))
        origin = _origin_in(json_object(only(line_values(first))))
    except InvalidValue as error:
        yield BadRow("line 1", str(error))
        return
    count, total_digest, end = 0, hashlib.sha256(), None
    for number, line in numbered:
        if end is not None:
            yield BadRow(f"line {number}", "comes after the closing line")
            continue
        try:
            row = json_object(only(line_values(line)))
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


def own_id(origin: str, source_id: str | None) -> int | None:
    """Return the id that an exported memory has in the agent with this origin, if any."""
    of, _, id_ = (source_id or "").partition("-")
    return int(id_) if of == origin and _ID.fullmatch(id_) else None


def _origin_in(manifest: Mapping[str, Any]) -> str:
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
    if row.pop("sha256", None) != _digest_of(row):
        raise InvalidValue("was altered: its digest does not match")
    id_, created_at = plain_id(row), time_in(row, "created_at")
    if id_ is None or created_at is None:
        raise InvalidValue("has no id or no created_at")
    source, source_id = _field(row, "source", *_TEXT), _field(row, "source_id", *_TEXT)
    # keep the original source, so that importing from there again still adds nothing
    is_source = source is not None and _SOURCE.fullmatch(source) is not None
    has_other_source = is_source and source_id is not None and is_opaque(source_id)
    return Incoming(
        place=place,
        content=_field(row, "content", str),
        memory_type=_field(row, "memory_type", str),
        tags=tuple(_field(row, "tags", list)),
        constitutional=_field(row, "constitutional", bool),
        created_at=created_at,
        spans_until=time_in(row, "spans_until"),
        discarded_at=time_in(row, "discarded_at"),
        origin=origin,
        source=source if has_other_source or source == NOTE else None,
        source_id=source_id if has_other_source else f"{origin}-{id_}",
        extra=_field(row, "extra", *_TEXT),
    )


def _field(row: Mapping[str, Any], name: str, *types: type) -> Any:
    value = row.get(name)
    if not isinstance(value, types):
        raise InvalidValue(f"{name} has a wrong type")
    return value
