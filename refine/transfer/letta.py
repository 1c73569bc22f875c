"""Letta: agent files (.af) of both versions, and archival passages as its API lists them."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from refine.errors import InvalidValue
from refine.rules.received_json import at, unchecked_json
from refine.transfer.rows import (
    DELETED,
    LeftOut,
    Row,
    Wanted,
    first_of,
    first_text,
    list_in,
    memory_in,
    plain_id,
    rows_of_objects,
    subject_prefix,
)
from refine.transfer.sources import Source

# Fields of archival passages that no other format has.
_OF_PASSAGES = {"archive_id", "embedding_config", "file_id", "organization_id"}


def recognizes(source: Source) -> bool:
    sample, first = source.sample, first_of(source.sample)
    if isinstance(sample, list):
        is_passage = "text" in first and not _OF_PASSAGES.isdisjoint(first)
        return is_passage or first.keys() >= {"label", "value"}
    is_inside_a_string = isinstance(sample, str) and sample.lstrip().startswith("{")
    return bool(
        is_inside_a_string
        or "core_memory" in first
        or {"agents", "blocks"} <= first.keys()
        or list_in(first.get("memory"), "blocks")
    )


def read(source: Source, wanted: Wanted) -> Iterator[Row]:
    document = source.document
    if isinstance(document, str):  # some clients store the document inside a JSON string
        document = unchecked_json(document)
    own_blocks = _blocks_of_the_agent(document, wanted.agent)
    listed = document if isinstance(document, list) else []
    blocks = list_in(document, "blocks") or list_in(at(document, ("memory",)), "blocks")
    core_memory = list_in(document, "core_memory")
    if not (listed or blocks or core_memory):
        raise InvalidValue("holds no blocks, core_memory, or archival passages")
    is_of_blocks = "value" in first_of(listed)
    make, noun = (_block, "block") if is_of_blocks else (_passage, "passage")
    yield from rows_of_objects(noun, listed, make)
    yield from rows_of_objects("block", blocks, partial(_block, own_blocks=own_blocks))
    yield from rows_of_objects("block", core_memory, _block)


def _blocks_of_the_agent(document: Any, wanted: str | None) -> set[str] | None:
    agents = [each for each in list_in(document, "agents") if isinstance(each, dict)]
    if wanted is not None:
        agents = [each for each in agents if wanted in (each.get("id"), each.get("name"))]
        if len(agents) != 1:
            raise InvalidValue(f"holds {len(agents)} agents of the id or name in --agent")
    if len(agents) > 1:
        raise InvalidValue(f"holds {len(agents)} agents: choose one with --agent ID or NAME")
    ids = agents[0].get("block_ids") if agents else None
    return set(map(str, ids)) if isinstance(ids, list) else None


def _block(place: str, row: dict[str, Any], own_blocks: set[str] | None = None) -> Iterator[Row]:
    if own_blocks is not None and plain_id(row) not in own_blocks:
        yield LeftOut("blocks that the agent in the file does not have")
        return
    label = first_text(row, "label") or ""
    prefix = subject_prefix(label and f"[{label.strip()}]", mark="")
    # block ids are only unique within one file
    yield memory_in(place, row, "value", prefix=prefix, memory_type="core", within=label)


def _passage(place: str, row: dict[str, Any]) -> Iterator[Row]:
    if row.get("is_deleted") is True and first_text(row, "text"):
        yield LeftOut(DELETED)
    else:
        yield memory_in(place, row, "text", source_id=plain_id(row))
