"""mem0: the JSON that ``get_all`` or ``search`` returns."""

from collections.abc import Iterator
from typing import Any, BinaryIO

from refine.transfer.json_document import Document, Element
from refine.transfer.rows import Row, document_rows, memory_in, plain_id, row_at

_LISTS = ("results", "memories", "items", "data")
_TEXTS = ("memory", "text", "data", "content")


def read(stream: BinaryIO) -> Iterator[Row]:
    """Yield the memories of a list that stands alone or under a name that mem0 has used."""
    document = Document(stream, [(None,), *((name, None) for name in _LISTS)])
    missing = f"has no list of memories (a list, or one under {', '.join(_LISTS)})"
    yield from document_rows(document, _row, missing)


def _row(element: Element) -> Row:
    place = f"row {int(element.path[-1]) + 1}"
    return row_at(place, lambda: _memory(place, element.object()))


def _memory(place: str, row: dict[str, Any]) -> Row:
    return memory_in(place, row, *_TEXTS, source_id=plain_id(row))
