"""Letta: agent files (.af) of both versions, and archival passages as its API lists them.

The memory blocks of one agent become core memories that begin with the block's label, "[human] …".
The rest of an agent file is ignored: messages, tools, and any keys stored with them.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO

from refine.errors import InvalidValue
from refine.transfer.json_document import Document, Element, Place
from refine.transfer.letta_agents import block_ids_of
from refine.transfer.rows import (
    BadRow,
    LeftOut,
    Row,
    document_rows,
    first_text,
    memory_in,
    plain_id,
    row_at,
    subject_prefix,
)
from refine.transfer.wrapped_json import unwrapped

_BLOCKS: Place = ("blocks", None)
_BLOCKS_OF_VERSION_1: Place = ("core_memory", None)
_PASSAGES: Place = (None,)


def read(stream: BinaryIO, *, agent: str | None = None) -> Iterator[Row]:
    """Yield the passages of a file, or the blocks of the agent with this name or id.

    Without ``agent`` the file must be of one agent, or of several that share their blocks. Raises
    AgentUnclear, which lists the agents, if it is not, or if there is no such agent.
    """
    try:
        stream = unwrapped(stream)
    except InvalidValue as error:
        yield BadRow("file", str(error))
        return
    block_ids = block_ids_of(stream, agent)
    stream.seek(0)
    document = Document(stream, [_BLOCKS, _BLOCKS_OF_VERSION_1, _PASSAGES])
    missing = "has no list of blocks, core_memory, or archival passages"
    yield from document_rows(document, partial(_row, block_ids), missing)


def _row(block_ids: set[str] | None, element: Element) -> Row:
    kind = "block" if element.path[0] in ("blocks", "core_memory") else "passage"
    place = f"{kind} {int(element.path[-1]) + 1}"
    if kind == "passage":
        return row_at(place, lambda: _passage(place, element.object()))
    agents_own = None if element.path[0] == "core_memory" else block_ids
    return row_at(place, lambda: _block(place, element.object(), agents_own))


def _block(place: str, row: dict[str, Any], agents_own: set[str] | None) -> Row:
    if agents_own is not None and plain_id(row) not in agents_own:
        return LeftOut("other block")
    label = first_text(row, "label") or ""
    return memory_in(
        place,
        row,
        "value",
        prefix=subject_prefix(f"[{label.strip()}]") if label else "",
        exclude=("created_at",),
        memory_type="core",
        # block ids are only unique within one file
        within=label,
    )


def _passage(place: str, row: dict[str, Any]) -> Row:
    if row.get("is_deleted") is True and first_text(row, "text"):
        return LeftOut("deleted")
    return memory_in(place, row, "text", exclude=("created_at",), source_id=plain_id(row))
