"""mem0: the JSON that ``get_all`` or ``search`` returns.

Memories that mem0 itself no longer shows are counted and left out. Where a file is about several
people, each memory begins with the person it is about: "ada: Likes tea".
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO

from refine import clock
from refine.errors import InvalidValue
from refine.rules.instants import has_passed
from refine.transfer.json_document import values_at
from refine.transfer.rows import (
    Found,
    LeftOut,
    OnePage,
    Row,
    first_text,
    memory_in,
    plain_id,
    rows_at,
    subject_prefix,
)

_LISTS = ("results", "memories", "items", "data")
_NOUNS = dict.fromkeys(("item", *(f"{name}.item" for name in _LISTS)), "row")
_NOTHING = f"holds no memories (a list, or one under {', '.join(_LISTS)})"
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
    seen = _seen_in(stream)
    stream.seek(0)
    make = partial(_memory, is_of_several=seen.is_of_several_people)
    yield from rows_at(values_at(stream, *_NOUNS), _NOUNS, make, _NOTHING)
    if seen.is_one_page:
        yield OnePage(seen.rows, seen.total)


@dataclass
class _Seen:
    """What a first pass shows: how many rows there are, of whom, and what stands around them."""

    rows: int = 0
    people: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    around: dict[str, Any] = field(default_factory=dict)

    @property
    def is_of_several_people(self) -> bool:
        return any(len(people) > 1 for people in self.people.values())

    @property
    def total(self) -> int | None:
        return self._number(_TOTALS)

    @property
    def is_one_page(self) -> bool:
        has_neighbour = any(self.around.get(name) for name in _NEXT)
        return has_neighbour or (self._number(_PAGES) or 1) > 1 or (self.total or 0) > self.rows

    def _number(self, names: tuple[str, ...]) -> int | None:
        numbers = [self.around[name] for name in names if isinstance(self.around.get(name), int)]
        return max(numbers, default=None)


def _seen_in(stream: BinaryIO) -> _Seen:
    seen = _Seen()
    with suppress(InvalidValue):  # reading the rows reports the same error
        for found in values_at(stream, *_NOUNS, *_NEXT, *_TOTALS, *_PAGES):
            if found.place not in _NOUNS:
                seen.around[found.place] = found.value
                continue
            seen.rows += 1
            row = found.value if isinstance(found.value, dict) else {}
            for name in _PEOPLE:
                if isinstance(row.get(name), str) and (person := row[name].strip()):
                    seen.people[name].add(person)
    return seen


def _memory(place: str, found: Found, *, is_of_several: bool) -> Row:
    row = found.fields()
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
