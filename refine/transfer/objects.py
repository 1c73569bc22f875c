"""Lists of objects with a text each, as most programs write them; others' states are heeded."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

from refine import clock
from refine.errors import InvalidValue
from refine.models.ledger.memory import MEMORY_TYPES
from refine.rules.instants import has_passed
from refine.rules.received_json import at
from refine.transfer.rows import (
    DELETED,
    NOT_ASKED_FOR,
    TIMES,
    LeftOut,
    Row,
    Wanted,
    first_text,
    memory_in,
    objects_in,
    plain_id,
    rows_in,
    subject_prefix,
)
from refine.transfer.sources import Source

LISTS = ("results", "memories", "items", "data")
TEXTS = ("memory", "text", "data", "content", "fact", "observation", "note")
PEOPLE = ("actor_id", "actorId", "user_id", "userId", "user")
SUBJECTS = ("subject", "entity", "person", "about")

_REACTIVATE = "at the source; to import them, make them active there and export them again"
_ARCHIVED = f"archived {_REACTIVATE}, or use --include-archived"
_EXPIRED = "expired at the source"
# Why a memory is left out: by the words that programs have for it, in its state, or in a field
# that is set ("archived", "is_archived", "archived_at", "isArchived").
_NOT_SHOWN = {
    DELETED: ("deleted", "discarded"),
    _ARCHIVED: ("archived",),
    f"paused {_REACTIVATE}": ("paused", "inactive"),
    "replaced by newer memories at the source": (
        *("replaced", "superseded", "outdated", "invalid"),
    ),
    _EXPIRED: ("expired",),
}
_FIELDS = {
    kind: {
        field
        for word in words
        for field in (word, f"is_{word}", f"is{word.title()}", f"{word}_at", f"{word}At")
        + (f"{word}_by", f"{word}By")
    }
    for kind, words in _NOT_SHOWN.items()
}
_UNSET = {"", "0", "false", "no", "none", "null"}
_EXPIRATIONS = ("expiration_date", "expires_at", "expirationDate", "expiresAt")
# Most memories have none of these, and are current.
_STATES = {"event", "state", "status", *_EXPIRATIONS}.union(*_FIELDS.values())

NO_TEXT = f"has no text in {', '.join(TEXTS)}; or name its field with --map"
_NO_CHANGE = "is a change in a memory's history; export the memories with get_all"


def _letters(name: str) -> str:
    return name.lower().replace("_", "").replace(" ", "")


# Without case and signs, for tables and programs that write "Created At" or "UserID".
_KNOWN = {
    _letters(name): name
    for name in (*reversed(TIMES), "tags", "id", *reversed(PEOPLE), *SUBJECTS, *TEXTS)
}


@lru_cache  # the rows of a file have the same fields
def _known_name(name: str) -> str:
    return _KNOWN.get(_letters(name), name)


# What ``--map`` stands for, where it is not the name of a field.
_MAPPED = {"content": "memory", "date": "created_at"}


def object_rows(
    source: Source,
    wanted: Wanted,
    *lists: str,
    unpack: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> Iterator[Row]:
    """Yield the memories of the objects; ``unpack`` gets fields that one holds further inside."""
    make = maker(wanted, map(unpack, objects_in(source, *lists)))
    yield from rows_in(source, lambda place, row: make(place, unpack(row)), *lists)


def maker(
    wanted: Wanted, rows: Iterable[Mapping[str, Any]]
) -> Callable[[str, dict[str, Any]], Iterator[Row]]:
    """Return what makes memories of these rows; of several people, each begins with its person."""
    people = {_person(_plainly_named(row)) for row in rows} - {""}
    return partial(_rows, wanted=wanted, is_of_several=len(people) > 1 and wanted.user is None)


def _rows(
    place: str, given: dict[str, Any], *, wanted: Wanted, is_of_several: bool
) -> Iterator[Row]:
    row = _plainly_named(_mapped(given, wanted.fields))
    person = _person(row)
    if wanted.user not in (None, person):
        yield LeftOut(NOT_ASKED_FOR)
        return
    if (kind := _kind_left_out(row, wanted)) is not None:
        yield LeftOut(kind)
        return
    if "role" in row and "memory" not in row:
        yield LeftOut("messages of conversations, which are no memories")
        return
    texts = TEXTS if "content" not in wanted.fields else ("memory",)
    if first_text(row, *texts) is None:
        raise InvalidValue(_NO_CHANGE if "new_memory" in row else NO_TEXT)
    subject = first_text(row, *SUBJECTS) or (person if is_of_several else "")
    yield memory_in(
        place,
        row,
        *texts,
        source_id=plain_id(row),
        memory_type=type_ if (type_ := row.get("memory_type")) in MEMORY_TYPES else None,
        prefix=subject_prefix(subject),
        within=subject,
    )


def _mapped(given: dict[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    row = dict(given)
    for known, path in fields.items():
        value = at(given, tuple(path.split(".")))
        row.pop(path, None)
        row[_MAPPED.get(known, known)] = (
            str(value) if known == "content" and value is not None else value
        )
    return row


def _plainly_named(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields by the names that are known, for those that differ in case and signs."""
    known = {name: _known_name(name) for name in given}
    row = {name if known[name] in given else known[name]: each for name, each in given.items()}
    return row if len(row) == len(given) else dict(given)


def _person(row: Mapping[str, Any]) -> str:
    return (first_text(row, *PEOPLE) or "").strip()


def _kind_left_out(row: Mapping[str, Any], wanted: Wanted) -> str | None:
    if _STATES.isdisjoint(row):
        return None
    if str(row.get("event")).upper() == "DELETE":
        return DELETED
    states = {str(row.get(name)).strip().lower() for name in ("state", "status")}
    # OpenMemory keeps the date when a memory is made active again
    ignored = {"archived_at"} if "active" in states else set()
    for kind, words in _NOT_SHOWN.items():
        fields = _FIELDS[kind].intersection(row) - ignored
        given = {str(row[field] or "").strip().lower() for field in fields}
        if states.intersection(words) or not given <= _UNSET:
            return None if kind == _ARCHIVED and wanted.archived else kind
    times = ((row.get(name), name) for name in _EXPIRATIONS)
    has_expired = any(has_passed(time, now=clock.now(), field=name) for time, name in times)
    return _EXPIRED if has_expired else None
