"""Refine's own format, read: JSON Lines between two lines that say what they hold.

``exporting`` writes it, and says more of the format.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any, BinaryIO

from refine.errors import InvalidValue
from refine.models.ledger.memory import NOTE
from refine.transfer.exporting import FORMAT, VERSION, digest_of
from refine.transfer.json_files import line_object, numbered_lines
from refine.transfer.rows import BadRow, Incoming, Row, is_opaque, plain_id, time_in

SOURCE = "refine"

_ID = re.compile(r"[0-9]{1,18}")  # within PostgreSQL's bigint
_ORIGIN = re.compile(r"[0-9a-f]{16}")
# The name of a format, or of Refine's own notes.
_SOURCE = re.compile(r"[a-z][a-z0-9]{1,19}")
_TEXT = (str, NoneType)


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


def own_id(origin: str, source_id: str | None) -> int | None:
    """Return the id that a memory of a full export has in the agent with this origin, if any."""
    of, _, id_ = (source_id or "").partition("-")
    return int(id_) if of == origin and _ID.fullmatch(id_) else None


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
    if digest != digest_of(row):
        raise InvalidValue("was altered: its digest does not match")
    id_ = plain_id(row)
    if id_ is None:
        raise InvalidValue("has no id")
    created_at = time_in(row, "created_at")
    if created_at is None:
        raise InvalidValue("has no created_at")
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
