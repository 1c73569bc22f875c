"""Letta: agent files (.af) of both versions, and archival passages as its API lists them.

The memory blocks of an agent become core memories that begin with the block's label, "[human] …".
The rest of an agent file is ignored: messages, tools, and any keys stored with them.
"""

import io
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO

from refine.errors import InvalidValue
from refine.rules.strict_json import strict_json
from refine.transfer.json_document import values_at
from refine.transfer.json_lines import BYTE_ORDER_MARK
from refine.transfer.rows import (
    BadRow,
    Found,
    LeftOut,
    Row,
    first_text,
    memory_in,
    plain_id,
    rows_at,
    subject_prefix,
)

MAX_WRAPPED_BYTES = 20_000_000

_BLOCKS, _PASSAGES = "blocks.item", "item"
_NOUNS = {_BLOCKS: "block", "core_memory.item": "block", _PASSAGES: "passage"}
_NOTHING = "holds no blocks, core_memory, or archival passages"


def read(stream: BinaryIO) -> Iterator[Row]:
    """Yield the passages of a file, or the blocks of its agent."""
    try:
        document = _unwrapped(stream)
        own_blocks = _blocks_of_the_agent(document)
    except InvalidValue as error:
        yield BadRow("file", str(error))
        return
    document.seek(0)
    yield from rows_at(values_at(document, *_NOUNS), _NOUNS, partial(_row, own_blocks), _NOTHING)


def _unwrapped(stream: BinaryIO) -> BinaryIO:
    """Return the document, which some clients store inside a JSON string."""
    is_string = stream.read(1_000).removeprefix(BYTE_ORDER_MARK).lstrip()[:1] == b'"'
    stream.seek(0)
    if not is_string:
        return stream
    text = stream.read().removeprefix(BYTE_ORDER_MARK)
    return io.BytesIO(strict_json(text, max_bytes=MAX_WRAPPED_BYTES).encode())


def _blocks_of_the_agent(stream: BinaryIO) -> set[str] | None:
    """Return the ids of the blocks of the file's agent; None where the file names none."""
    agents = {"agents.item.id": 0, "agents.item.block_ids": 0}
    block_ids = None
    with suppress(InvalidValue):  # reading the rows reports the same error
        for found in values_at(stream, *agents):
            agents[found.place] += 1
            if isinstance(found.value, list):
                block_ids = set(map(str, found.value))
    if max(agents.values()) > 1:
        raise InvalidValue("holds several agents: export each of them to a file of its own")
    return block_ids


def _row(own_blocks: set[str] | None, place: str, found: Found) -> Row:
    if found.place == _PASSAGES:
        return _passage(place, found.fields())
    return _block(place, found.fields(), own_blocks if found.place == _BLOCKS else None)


def _block(place: str, row: dict[str, Any], own_blocks: set[str] | None) -> Row:
    if own_blocks is not None and plain_id(row) not in own_blocks:
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
