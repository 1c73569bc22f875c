"""Letta: agent files (.af) of both versions, and archival passages as its API lists them.

Memory blocks become core memories, ``read_only`` ones constitutional. Nothing else of an agent file
is looked at: not its messages, not its tools, and not the keys that may stand beside them.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO

from refine.errors import InvalidValue
from refine.transfer.json_document import Document, Found, Place
from refine.transfer.json_text import TOO_LONG, parsed
from refine.transfer.rows import (
    BadRow,
    Incoming,
    LeftOut,
    Row,
    extra_of,
    first_text,
    known_and_other_tags,
    plain_id,
    time_in,
)

_BLOCKS: Place = ("blocks", None)
_BLOCKS_OF_VERSION_1: Place = ("core_memory", None)
_PASSAGES: Place = (None,)
_AGENTS: Place = ("agents", None, "block_ids")


def read(stream: BinaryIO) -> Iterator[Row]:
    """Yield blocks, or passages; a file of several agents only where they share all their blocks.

    Whose memories the others' are nobody could tell afterwards.
    """
    try:
        if not _is_of_one_agent(stream):
            yield BadRow("file", "holds several agents with blocks of their own; export one alone")
            return
        stream.seek(0)
        document = Document(stream, [_BLOCKS, _BLOCKS_OF_VERSION_1, _PASSAGES])
        for found in document.values():
            yield _row(found)
    except InvalidValue as error:
        yield BadRow("file", str(error))
        return
    if not document.lists:
        yield BadRow("file", "has no list of blocks, core_memory, or archival passages")


def _is_of_one_agent(stream: BinaryIO) -> bool:
    """Tell whether one agent holds every block that any of them holds: a group may share them."""
    try:
        held = [_ids(found) for found in Document(stream, [_AGENTS]).values()]
    except InvalidValue:
        return True  # the rows will say so, at their place
    everything = set().union(*held)
    return not held or any(ids == everything for ids in held)


def _ids(found: Found) -> set[str]:
    ids = parsed(found.raw) if found.raw is not None else None
    return {str(one) for one in ids} if isinstance(ids, list) else set()


def _row(found: Found) -> Row:
    kind = "block" if found.path[0] in ("blocks", "core_memory") else "passage"
    place = f"{kind} {int(found.path[-1]) + 1}"
    if found.raw is None:
        return BadRow(place, TOO_LONG)
    try:
        row = parsed(found.raw)
        if not isinstance(row, dict):
            raise InvalidValue("is not an object")
        return _block(place, row) if kind == "block" else _passage(place, row)
    except InvalidValue as error:
        return BadRow(place, str(error))


def _block(place: str, row: dict[str, Any]) -> Row:
    content = first_text(row, "value")
    if content is None:
        raise InvalidValue("has no text in value")
    if not content:
        return LeftOut("blank")
    read_only = row.get("read_only")
    if not isinstance(read_only, bool | None):
        raise InvalidValue("read_only is neither true nor false")
    tags, others = known_and_other_tags(row.get("tags"))
    return Incoming(
        place=place,
        content=content,
        memory_type="core",
        tags=tags,
        constitutional=bool(read_only),
        created_at=time_in(row),
        # the ids of blocks are numbers within one file
        within=first_text(row, "label") or "",
        extra=extra_of({**row, "tags": others}, but=("value", "read_only", "created_at")),
    )


def _passage(place: str, row: dict[str, Any]) -> Row:
    content = first_text(row, "text")
    if content is None:
        raise InvalidValue("has no text in text")
    if not content:
        return LeftOut("blank")
    if row.get("is_deleted") is True:
        return LeftOut("deleted passage")
    tags, others = known_and_other_tags(row.get("tags"))
    return Incoming(
        place=place,
        content=content,
        tags=tags,
        created_at=time_in(row),
        source_id=plain_id(row),
        extra=extra_of({**row, "tags": others}, but=("text", "created_at")),
    )
