"""mem0: the JSON that ``get_all`` or ``search`` returns.

Memories that mem0 itself no longer shows are counted and left out. Where a file is about several
people, each memory begins with the person it is about: "ada: Likes tea".
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO

from refine.errors import InvalidValue
from refine.transfer.json_document import Document, Element, Place
from refine.transfer.mem0_states import kind_left_out
from refine.transfer.rows import (
    LeftOut,
    OnePage,
    Row,
    document_rows,
    first_text,
    memory_in,
    plain_id,
    row_at,
    subject_prefix,
)

_LISTS = ("results", "memories", "items", "data")
_TEXTS = ("memory", "text", "data", "content")
_ROWS: tuple[Place, ...] = ((None,), *((name, None) for name in _LISTS))

_PEOPLE = ("actor_id", "user_id")

_NEXT = ("next", "previous", "has_more", "next_cursor")
_TOTALS = ("count", "total", "total_count", "total_memories")
_PAGES = ("pages", "total_pages")


def read(stream: BinaryIO) -> Iterator[Row]:
    """Yield the memories of a list that stands alone or under a name that mem0 has used."""
    is_of_several = _is_of_several_people(stream)
    stream.seek(0)
    page = _Page()
    around = [(name,) for name in (*_NEXT, *_TOTALS, *_PAGES)]
    document = Document(stream, [*_ROWS, *around])
    missing = f"has no list of memories (a list, or one under {', '.join(_LISTS)})"
    yield from document_rows(document, partial(_row, page, is_of_several), missing)
    if page.is_one_of_several:
        yield OnePage(page.rows, page.total)


@dataclass
class _Page:
    """What an answer says around its list of memories, and how many there were in it."""

    fields: dict[str, Any] = field(default_factory=dict)
    rows: int = 0

    @property
    def total(self) -> int | None:
        return self._number(_TOTALS)

    @property
    def is_one_of_several(self) -> bool:
        has_neighbour = any(self.fields.get(name) for name in _NEXT)
        return has_neighbour or (self._number(_PAGES) or 1) > 1 or (self.total or 0) > self.rows

    def _number(self, names: tuple[str, ...]) -> int | None:
        numbers = [self.fields[name] for name in names if isinstance(self.fields.get(name), int)]
        return max(numbers, default=None)


def _is_of_several_people(stream: BinaryIO) -> bool:
    """Tell whether the rows name different people: then each memory must name its person."""
    people: dict[str, set[str]] = {name: set() for name in _PEOPLE}
    for name, person in _people_in(stream):
        people[name].add(person)
        if len(people[name]) > 1:
            return True
    return False


def _people_in(stream: BinaryIO) -> Iterator[tuple[str, str]]:
    """Yield the people that the rows name, each with the name of the field."""
    with suppress(InvalidValue):  # reading the rows reports the same error
        for element in Document(stream, _ROWS).elements():
            row = element.value if isinstance(element.value, dict) else {}
            for name in _PEOPLE:
                if isinstance(row.get(name), str) and (person := row[name].strip()):
                    yield name, person


def _row(page: _Page, is_of_several: bool, element: Element) -> Row | None:
    *_, last = element.path
    if isinstance(last, str):
        page.fields[last] = element.value
        return None
    page.rows += 1
    place = f"row {last + 1}"
    return row_at(place, lambda: _memory(place, element.object(), is_of_several))


def _memory(place: str, row: dict[str, Any], is_of_several: bool) -> Row:
    if (kind := kind_left_out(row)) is not None:
        return LeftOut(kind)
    if "new_memory" in row and first_text(row, *_TEXTS) is None:
        raise InvalidValue("is a change in a memory's history; export the memories with get_all")
    person = (first_text(row, *_PEOPLE) or "").strip() if is_of_several else ""
    return memory_in(
        place,
        row,
        *_TEXTS,
        source_id=plain_id(row),
        prefix=subject_prefix(f"{person}:") if person else "",
        within=person,
    )
