"""Letta: agent files (.af) of both versions, and archival passages as its API lists them."""

from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO

from refine.errors import InvalidValue
from refine.rules.received_json import unchecked_json
from refine.transfer.rows import (
    DELETED,
    LeftOut,
    Row,
    first_text,
    list_in,
    memory_in,
    plain_id,
    read_document,
    rows_of_objects,
    subject_prefix,
)


def read(stream: BinaryIO) -> Iterator[Row]:
    document = read_document(stream)
    if isinstance(document, str):  # some clients store the document inside a JSON string
        document = unchecked_json(document)
    own_blocks = _blocks_of_the_agent(document)
    passages = document if isinstance(document, list) else []
    blocks, core_memory = list_in(document, "blocks"), list_in(document, "core_memory")
    if not (passages or blocks or core_memory):
        raise InvalidValue("holds no blocks, core_memory, or archival passages")
    yield from rows_of_objects("passage", passages, _passage)
    yield from rows_of_objects("block", blocks, partial(_block, own_blocks=own_blocks))
    yield from rows_of_objects("block", core_memory, _block)


def _blocks_of_the_agent(document: Any) -> set[str] | None:
    agents = list_in(document, "agents")
    if len(agents) > 1:
        raise InvalidValue("holds several agents: export each of them to a file of its own")
    ids = agents[0].get("block_ids") if agents and isinstance(agents[0], dict) else None
    return set(map(str, ids)) if isinstance(ids, list) else None


def _block(place: str, row: dict[str, Any], own_blocks: set[str] | None = None) -> Row:
    if own_blocks is not None and plain_id(row) not in own_blocks:
        return LeftOut("blocks that the agent in the file does not have")
    label = first_text(row, "label") or ""
    return memory_in(
        place,
        row,
        "value",
        prefix=subject_prefix(f"[{label.strip()}]") if label else "",
        memory_type="core",
        # block ids are only unique within one file
        within=label,
    )


def _passage(place: str, row: dict[str, Any]) -> Row:
    if row.get("is_deleted") is True and first_text(row, "text"):
        return LeftOut(DELETED)
    return memory_in(place, row, "text", source_id=plain_id(row))
