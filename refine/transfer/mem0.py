"""mem0: the JSON that ``get_all`` or ``search`` returns, without memories that mem0 hides."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, BinaryIO

from refine import clock
from refine.errors import InvalidValue
from refine.rules.instants import has_passed
from refine.transfer.rows import (
    DELETED,
    BadRow,
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

_LISTS = ("results", "memories", "items", "data")
_TEXTS = ("memory", "text", "data", "content")
_PEOPLE = ("actor_id", "user_id")

# The fields of an answer about its other pages.
_NEXT = ("next", "previous", "has_more", "next_cursor")
_TOTALS = ("count", "total", "total_count", "total_memories")
_PAGES = ("pages", "total_pages")

_REACTIVATE = "at the source; to import them, make them active there and export them again"
_EXPIRED = "expired at the source"
# Why a memory is left out: by the words that the platform, the library and OpenMemory have for it,
# in its state, or in a field that is set ("archived", "is_archived", "archived_at").
_NOT_SHOWN = {
    DELETED: ("deleted",),
    f"archived {_REACTIVATE}": ("archived",),
    f"paused {_REACTIVATE}": ("paused", "inactive"),
    "replaced by newer memories at the source": (
        *("replaced", "superseded", "outdated", "invalid"),
    ),
    _EXPIRED: ("expired",),
}
_FIELDS = {
    kind: {field for word in words for field in (word, f"is_{word}", f"{word}_at", f"{word}_by")}
    for kind, words in _NOT_SHOWN.items()
}
_UNSET = ("", "0", "false", "no", "none", "null")
_EXPIRATIONS = ("expiration_date", "expires_at")


def read(stream: BinaryIO) -> Iterator[Row]:
    """Yield the memories of a list that stands alone or under a name that mem0 has used."""
    document = read_document(stream)
    around = document if isinstance(document, dict) else {}
    memories = document if isinstance(document, list) else []
    memories = [*memories, *chain.from_iterable(list_in(around, name) for name in _LISTS)]
    if not memories:
        raise InvalidValue(f"holds no memories (a list, or one under {', '.join(_LISTS)})")
    make = partial(_memory, is_of_several=_is_of_several_people(memories))
    yield from rows_of_objects("row", memories, make)
    has_neighbour = any(around.get(name) for name in _NEXT)
    if has_neighbour or _largest(around, _PAGES) > 1 or _largest(around, _TOTALS) > len(memories):
        join = "join the rows of all pages in one file, and import that"
        yield BadRow("file", f"is one page of several, with {len(memories):,} rows; {join}")


def _is_of_several_people(rows: Sequence[Any]) -> bool:
    objects = [row for row in rows if isinstance(row, dict)]
    for name in _PEOPLE:
        people = {(first_text(row, name) or "").strip() for row in objects}
        if len(people - {""}) > 1:
            return True
    return False


def _largest(around: Mapping[str, Any], names: tuple[str, ...]) -> int:
    return max((around[name] for name in names if isinstance(around.get(name), int)), default=0)


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
    if str(row.get("event")).upper() == "DELETE":
        return DELETED
    states = {str(row.get(name)).strip().lower() for name in ("state", "status")}
    # OpenMemory keeps the date when a memory is made active again
    ignored = {"archived_at"} if "active" in states else set()
    for kind, words in _NOT_SHOWN.items():
        fields = _FIELDS[kind].intersection(row) - ignored
        if states.intersection(words) or any(_is_set(row[field]) for field in fields):
            return kind
    return _EXPIRED if any(_has_expired(row, name) for name in _EXPIRATIONS) else None


def _is_set(value: object) -> bool:
    return bool(value) and str(value).strip().lower() not in _UNSET


def _has_expired(row: Mapping[str, Any], name: str) -> bool:
    try:
        return has_passed(row.get(name), now=clock.now())
    except InvalidValue as error:
        raise InvalidValue(f"{name} {error}") from None
