"""Letta: agent files (.af) of both versions, and archival passages as its API lists them.

Memory blocks become core memories; ``read_only`` ones become constitutional. The rest of an agent
file is ignored: messages, tools, and any keys stored with them.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO

from refine.errors import InvalidValue
from refine.transfer.json_document import Document, Element, Place
from refine.transfer.rows import (
    BadRow,
    LeftOut,
    Row,
    document_rows,
    first_text,
    memory_in,
    plain_id,
    row_at,
)

_BLOCKS: Place = ("blocks", None)
_BLOCKS_OF_VERSION_1: Place = ("core_memory", None)
_PASSAGES: Place = (None,)
_AGENTS: Place = ("agents", None, "block_ids")


def read(stream: BinaryIO) -> Iterator[Row]:
    """Yield the blocks or passages of a file; agents that do not share their blocks are refused."""
    if not _is_of_one_agent(stream):
        yield BadRow("file", "holds several agents with their own blocks; export a single agent")
        return
    stream.seek(0)
    document = Document(stream, [_BLOCKS, _BLOCKS_OF_VERSION_1, _PASSAGES])
    missing = "has no list of blocks, core_memory, or archival passages"
    yield from document_rows(document, _row, missing)


def _is_of_one_agent(stream: BinaryIO) -> bool:
    """Tell whether some agent has all the blocks: the agents of a group may share theirs."""
    try:
        block_ids = [_ids(element) for element in Document(stream, [_AGENTS]).elements()]
    except InvalidValue:
        return True  # reading the rows reports the same error
    every_id = set().union(*block_ids)
    return not block_ids or every_id in block_ids


def _ids(element: Element) -> set[str]:
    return set(map(str, element.value)) if isinstance(element.value, list) else set()


def _row(element: Element) -> Row:
    kind = "block" if element.path[0] in ("blocks", "core_memory") else "passage"
    place = f"{kind} {int(element.path[-1]) + 1}"
    memory = _block if kind == "block" else _passage
    return row_at(place, lambda: memory(place, element.object()))


def _block(place: str, row: dict[str, Any]) -> Row:
    read_only = row.get("read_only")
    if not isinstance(read_only, bool | None):
        raise InvalidValue("read_only is neither true nor false")
    return memory_in(
        place,
        row,
        "value",
        exclude=("read_only", "created_at"),
        memory_type="core",
        constitutional=bool(read_only),
        # block ids are only unique within one file
        within=first_text(row, "label") or "",
    )


def _passage(place: str, row: dict[str, Any]) -> Row:
    if row.get("is_deleted") is True and first_text(row, "text"):
        return LeftOut("deleted passage")
    return memory_in(place, row, "text", exclude=("created_at",), source_id=plain_id(row))
