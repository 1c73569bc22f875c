"""Anthropic's memory stores: files with a path each, as the API lists them."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from refine.transfer.markdown import Part, rows_of_part
from refine.transfer.rows import (
    BLANK,
    LeftOut,
    Row,
    Wanted,
    first_of,
    first_text,
    rows_in,
    time_field,
    time_in,
)
from refine.transfer.sources import Source

_LISTS = ("data", "memories")
_OF_STORES = {"memory_store_id", "memory_version_id", "content_sha256"}


def recognizes(source: Source) -> bool:
    first = first_of(source.sample, *_LISTS)
    is_in_store = not _OF_STORES.isdisjoint(first) or str(first.get("path")).startswith("/")
    is_memory = is_in_store and {"path", "content"} <= first.keys()
    return is_memory or first.get("type") == "memory_prefix"


def read(source: Source, _wanted: Wanted) -> Iterator[Row]:
    yield from rows_in(source, _rows, *_LISTS)


def _rows(place: str, memory: dict[str, Any]) -> Iterator[Row]:
    path, text = first_text(memory, "path") or "", first_text(memory, "content")
    if not text:
        yield LeftOut(BLANK if text == "" else "folders and memories whose content was not listed")
        return
    part = Part(
        place,
        title=PurePosixPath(path).stem,
        within=path,
        fields={"path": path},
        created_at=time_in(memory, time_field(memory)),
    )
    yield from rows_of_part(part, enumerate(text.splitlines(), 1))
