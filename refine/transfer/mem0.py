"""mem0: the JSON that ``get_all`` or ``search`` returns."""

from collections.abc import Iterator
from typing import Any, BinaryIO

from refine.errors import InvalidValue
from refine.transfer.json_document import Document, Element
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
    """Yield the memories of a list that stands alone or under a name that mem0 has used."""
    document = Document(stream, [(None,), *((name, None) for name in _LISTS)])
    try:
        for element in document.elements():
            yield _row(element)
    except InvalidValue as error:
        yield BadRow("file", str(error))
        return
    if not document.lists:
        yield BadRow("file", f"has no list of memories (a list, or one under {', '.join(_LISTS)})")


def _row(element: Element) -> Row:
    place = f"row {int(element.path[-1]) + 1}"
    try:
        return _memory(place, element.object())
    except InvalidValue as error:
        return BadRow(place, str(error))


def _memory(place: str, row: dict[str, Any]) -> Row:
    content = first_text(row, *_TEXTS)
    if content is None:
        raise InvalidValue(f"has no text in {', '.join(_TEXTS)}")
    if not content:
        return LeftOut("blank")
    tags, others = known_and_other_tags(row.get("tags"))
    content_fields = [name for name in _TEXTS if row.get(name) == content]
    return Incoming(
        place=place,
        content=content,
        tags=tags,
        created_at=time_in(row),
        source_id=plain_id(row),
        extra=extra_of({**row, "tags": others}, but=content_fields),
    )
