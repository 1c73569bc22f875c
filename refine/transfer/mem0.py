"""mem0: what ``get_all`` or ``search`` returned, as JSON."""

from collections.abc import Iterator
from typing import Any, BinaryIO

from refine.errors import InvalidValue
from refine.transfer.json_document import Document, Found
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

_LISTS = ("results", "memories", "items", "data")
_TEXTS = ("memory", "text", "data", "content")


def read(stream: BinaryIO) -> Iterator[Row]:
    """Yield the memories of a list, or of an object with one under a name that mem0 has used."""
    document = Document(stream, [(None,), *((name, None) for name in _LISTS)])
    try:
        for found in document.values():
            yield _row(found)
    except InvalidValue as error:
        yield BadRow("file", str(error))
        return
    if not document.lists:
        yield BadRow("file", f"has no list of memories (a list, or one under {', '.join(_LISTS)})")


def _row(found: Found) -> Row:
    place = f"row {int(found.path[-1]) + 1}"
    if found.raw is None:
        return BadRow(place, TOO_LONG)
    try:
        return _memory(place, parsed(found.raw))
    except InvalidValue as error:
        return BadRow(place, str(error))


def _memory(place: str, row: Any) -> Row:
    if not isinstance(row, dict):
        raise InvalidValue("is not an object")
    content = first_text(row, *_TEXTS)
    if content is None:
        raise InvalidValue(f"has no text in {', '.join(_TEXTS)}")
    if not content:
        return LeftOut("blank")
    tags, others = known_and_other_tags(row.get("tags"))
    used = [name for name in _TEXTS if row.get(name) == content]
    return Incoming(
        place=place,
        content=content,
        tags=tags,
        created_at=time_in(row),
        source_id=plain_id(row),
        extra=extra_of({**row, "tags": others}, but=used),
    )
