"""mem0: the JSON that ``get_all`` or ``search`` returns.

Memories that mem0 itself no longer shows are counted and left out. Where a file is about several
people, each memory begins with the person it is about: "ada: Likes tea".
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, BinaryIO

from refine import clock
from refine.errors import InvalidValue
from refine.rules.instants import has_passed
from refine.transfer.json_files import read_document, rows_of_objects
from refine.transfer.rows import (
    BadRow,
    LeftOut,
    OnePage,
    Row,
    first_text,
    list_in,
    memory_in,
    plain_id,
    subject_prefix,
)

_LISTS = ("results", "memories", "items", "data")
_TEXTS = ("memory", "text", "data", "content")
_PEOPLE = ("actor_id", "user_id")

# What an answer says of its other pages.
_NEXT = ("next", "previous", "has_more", "next_cursor")
_TOTALS = ("count", "total", "total_count", "total_memories")
_PAGES = ("pages", "total_pages")

# The platform, the library and OpenMemory each have fields of their own for what is not shown.
_STATES = {
    "deleted": "deleted",
    "archived": "archived",
    "paused": "paused",
    "inactive": "paused",
    "expired": "expired",
    "replaced": "replaced",
    "superseded": "replaced",
    "outdated": "replaced",
    "invalid": "replaced",
}
_MARKS = {
    "is_deleted": "deleted",
    "deleted": "deleted",
    "deleted_at": "deleted",
    "is_archived": "archived",
    "archived": "archived",
    "archived_at": "archived",
    "is_paused": "paused",
    "paused": "paused",
    "superseded_by": "replaced",
    "replaced_by": "replaced",
    "superseded_at": "replaced",
    "invalid_at": "replaced",
    "is_superseded": "replaced",
}
_UNSET = ("", "0", "false", "no", "none", "null")
_EXPIRATIONS = ("expiration_date", "expires_at")


def read(stream: BinaryIO) -> Iterator[Row]:
    """Yield the memories of a list that stands alone or under a name that mem0 has used."""
    try:
        document = read_document(stream)
    except InvalidValue as error:
        yield BadRow("file", str(error))
        return
    around = document if isinstance(document, dict) else {}
    memories = document if isinstance(document, list) else []
    memories = [*memories, *chain.from_iterable(list_in(around, name) for name in _LISTS)]
    if not memories:
        yield BadRow("file", f"holds no memories (a list, or one under {', '.join(_LISTS)})")
    make = partial(_memory, is_of_several=_is_of_several_people(memories))
    yield from rows_of_objects("row", memories, make)
    if _has_other_pages(around, len(memories)):
        yield OnePage(len(memories), _largest(around, _TOTALS))


def _is_of_several_people(rows: Sequence[Any]) -> bool:
    objects = [row for row in rows if isinstance(row, dict)]
    for name in _PEOPLE:
        people = {(first_text(row, name) or "").strip() for row in objects}
        if len(people - {""}) > 1:
            return True
    return False


def _has_other_pages(around: Mapping[str, Any], rows: int) -> bool:
    has_neighbour = any(around.get(name) for name in _NEXT)
    pages, total = _largest(around, _PAGES) or 1, _largest(around, _TOTALS) or 0
    return has_neighbour or pages > 1 or total > rows


def _largest(around: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    numbers = [around[name] for name in names if isinstance(around.get(name), int)]
    return max(numbers, default=None)


def _memory(place: str, row: dict[str, Any], *, is_of_several: bool) -> Row:
    if (kind := _kind_left_out(row)) is not None:
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


def _kind_left_out(row: Mapping[str, Any]) -> str | None:
    """Return why mem0 no longer shows the memory; None if it still does."""
    if str(row.get("event")).upper() == "DELETE":
        return "deleted"
    states = [str(row.get(name)).strip().lower() for name in ("state", "status")]
    kinds = [_STATES[state] for state in states if state in _STATES]
    # OpenMemory keeps the date when a memory is made active again
    is_active = "active" in states
    kinds += [
        kind
        for name, kind in _MARKS.items()
        if _is_set(row.get(name)) and not (is_active and name == "archived_at")
    ]
    if any(_has_expired(row, name) for name in _EXPIRATIONS):
        kinds.append("expired")
    return kinds[0] if kinds else None


def _is_set(value: object) -> bool:
    return bool(value) and str(value).strip().lower() not in _UNSET


def _has_expired(row: Mapping[str, Any], name: str) -> bool:
    try:
        return has_passed(row.get(name), now=clock.now())
    except InvalidValue as error:
        raise InvalidValue(f"{name} {error}") from None
