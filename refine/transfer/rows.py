"""What the readers of all formats yield, and what they share."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from refine.errors import InvalidValue
from refine.rules.content import TAGS
from refine.rules.personal import looks_personal
from refine.rules.received_json import check_json
from refine.transfer.dates import time_of
from refine.transfer.sources import MAX_FIELDS, Source, line_values

MAX_EXTRA_CHARACTERS = 50_000
MAX_PREFIX_CHARACTERS = 1_000

# The names that a time, or the day of a memory, has in the wild; the first that is filled counts.
TIMES = (
    *("created_at", "createdAt", "created", "create_time", "created_time", "creation_date"),
    *("date_created", "dateCreated", "added_at", "addedAt", "recorded_at", "recordedAt"),
    *("timestamp", "date", "datetime", "time", "ts", "_savedAt", "saved_at", "savedAt"),
    *("occurred_start", "mentioned_at", "valid_at", "observed_at", "learned_at"),
    *("updated_at", "updatedAt", "modified"),
)

# Numbers, UUIDs and digests.
_OPAQUE_ID = re.compile(r"[0-9a-fA-F-]{1,64}")

# Vectors are only of use in the index that they come from.
_VECTORS = frozenset({"embedding", "embeddings", "vector", "embedding_config"})

# Fields that may hold a credential are never imported.
_SECRET = re.compile(
    r"(?i)(^|[_-])(secrets?|passwords?|passwd|pwd|passphrase|credentials?|cookies?|auth|"
    r"(api|private|secret|access)[_-]?keys?|token|authorization|environment[_-]variables)$"
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# The encoder of ``extra``.
_extra_json = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode


class Incoming(NamedTuple):
    """A memory as the file has it; its content may still be too long, and its tags unknown.

    The memory begins with ``prefix``, which says what it is about ("Alice (person): ").
    ``source_id`` is its id at the source. A memory without one is identified by its content within
    ``within`` (the label of its block, the name of its entity).
    ``memory_type`` None: the importer chooses. ``origin`` is the agent that exported it (see
    ``own.origin_of``).
    """

    place: str
    content: str
    prefix: str = ""
    memory_type: str | None = None
    tags: tuple[str, ...] = ()
    constitutional: bool = False
    created_at: datetime | None = None
    spans_until: datetime | None = None
    discarded_at: datetime | None = None
    origin: str | None = None
    source: str | None = None
    source_id: str | None = None
    within: str = ""
    extra: str | None = None


class BadRow(NamedTuple):
    place: str
    reason: str


class LeftOut(NamedTuple):
    kind: str


Row = Incoming | BadRow | LeftOut

BLANK = "blank"
DELETED = "deleted at the source"


class Wanted(NamedTuple):
    """What of a file is wanted, and how its own fields are called, by ``FIELDS``."""

    agent: str | None = None
    user: str | None = None
    archived: bool = False
    fields: Mapping[str, str] = MappingProxyType({})


ALL = Wanted()

# What ``--map`` can name.
FIELDS = ("content", "date", "subject", "id", "tags")

# The fields of an answer about its other pages.
_NEXT = ("next", "previous", "has_more", "next_cursor", "next_page", "next_page_offset")
_PAGES = ("pages", "total_pages")
_TOTALS = ("count", "total", "total_count", "total_memories")

NOT_ASKED_FOR = "memories of others than --user names"


def rows_in(
    source: Source, make: Callable[[str, dict[str, Any]], Iterable[Row]], *lists: str
) -> Iterator[Row]:
    """Yield what ``make`` yields of each object: on a line each, in a list, or in lists by name."""
    if not source.has_json_lines:
        rows = listed(source.document, *lists)
        yield from rows_of_objects("row", rows, make)
        if isinstance(source.document, dict) and rows != [source.document]:
            yield from _further_pages(source.document, len(rows))
        return
    for number, line in source.lines():
        place = f"line {number}"
        try:
            for value in line_values(line):
                yield from make(place, json_object(value))
        except InvalidValue as error:
            yield BadRow(place, str(error))


def _further_pages(document: Any, count: int) -> Iterator[Row]:
    """Yield a BadRow if the fields around a list tell of other pages."""
    inner = document.get("result")
    around = {**inner, **document} if isinstance(inner, dict) else document
    has_neighbour = any(around.get(name) for name in _NEXT)
    if has_neighbour or _largest(around, _PAGES) > 1 or _largest(around, _TOTALS) > count:
        join = "join the rows of all pages in one file, and import that"
        yield BadRow("file", f"is one page of several, with {count:,} rows; {join}")


def _largest(around: Mapping[str, Any], names: tuple[str, ...]) -> int:
    return max((around[name] for name in names if isinstance(around.get(name), int)), default=0)


def objects_in(source: Source, *lists: str) -> Iterator[dict[str, Any]]:
    """Yield the objects that ``rows_in`` makes rows of, without those that are damaged."""
    if not source.has_json_lines:
        yield from (each for each in listed(source.document, *lists) if isinstance(each, dict))
        return
    for _, line in source.lines():
        with suppress(InvalidValue):
            yield from (each for each in line_values(line) if isinstance(each, dict))


def rows_of_objects(
    noun: str, values: Iterable[Any], make: Callable[[str, dict[str, Any]], Iterable[Row]]
) -> Iterator[Row]:
    for number, value in enumerate(values, 1):
        place = f"{noun} {number}"
        try:
            check_json(value, max_fields=MAX_FIELDS)
            yield from make(place, json_object(value))
        except InvalidValue as error:
            yield BadRow(place, str(error))


def listed(value: Any, *lists: str) -> list[Any]:
    """Return a list, the lists under these names together (or under one there), or the object.

    A text in a list is an object with this text.
    """
    if isinstance(value, list):
        return [{"text": each} if isinstance(each, str) else each for each in value]
    if not isinstance(value, dict):
        return []
    found = [value[name] for name in lists if isinstance(value.get(name), list | dict)]
    return [each for inner in found for each in listed(inner, *lists)] if found else [value]


def first_of(sample: Any, *lists: str) -> Mapping[str, Any]:
    """Return the first object of a sample, to tell a format by; {} if there is none."""
    return next((each for each in listed(sample, *lists) if isinstance(each, dict)), {})


def json_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidValue("is not an object")
    return value


def list_in(document: object, name: str) -> list[Any]:
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, list) else []


def first_text(row: Mapping[str, Any], *names: str) -> str | None:
    """Return the first text that is not blank; "" if all are, None if no field holds text."""
    texts = [row[name] for name in names if isinstance(row.get(name), str)]
    return next((text for text in texts if text.strip()), "" if texts else None)


def memory_in(place: str, row: Mapping[str, Any], *texts: str, **fields: Any) -> Row:
    """Return the memory in one of the fields ``texts``; all others but its time become extra."""
    content = first_text(row, *texts)
    if content is None:
        raise InvalidValue(f"has no text in {', '.join(texts)}")
    if not content:
        return LeftOut(BLANK)
    tags, others = known_and_other_tags(row.get("tags"))
    used = [name for name in texts if row.get(name) == content]
    timed = time_field(row)
    return Incoming(
        place=place,
        content=content,
        tags=tags,
        created_at=time_in(row, timed),
        extra=extra_of({**row, "tags": others}, exclude=(*used, timed)),
        **fields,
    )


def subject_prefix(subject: str, mark: str = ":") -> str:
    """Return ``subject`` on one line, to stand before a content; InvalidValue if it is too long."""
    if not subject.strip():
        return ""
    line = " ".join(subject.split()) + mark
    if len(line) > MAX_PREFIX_CHARACTERS:
        raise InvalidValue(
            f"has {len(line):,} characters in its name, type or label; at most "
            f"{MAX_PREFIX_CHARACTERS:,} are allowed"
        )
    return f"{line} "


def plain_id(row: Mapping[str, Any]) -> str | None:
    value = row.get("id", row.get("source_id"))
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value.strip() or None if isinstance(value, str) else None


def is_opaque(id_: str) -> bool:
    """Tell whether an id may be shown: what could be words, or a phone number, is content."""
    return _OPAQUE_ID.fullmatch(id_) is not None and not looks_personal(id_)


def time_field(row: Mapping[str, Any]) -> str:
    """Return the field that tells when the memory is from."""
    return next((name for name in TIMES if row.get(name) not in (None, "")), "created_at")


def has_time(row: Mapping[str, Any]) -> bool:
    return row.get(time_field(row)) is not None


def without_times(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in TIMES}


def time_in(row: Mapping[str, Any], name: str) -> datetime | None:
    return time_of(row.get(name), name)


def known_and_other_tags(tags: object) -> tuple[tuple[str, ...], Any]:
    """Return the tags that Refine knows, and the rest (None: nothing else)."""
    if not isinstance(tags, list):
        return (), tags
    normalized = [tag.strip().lower() if isinstance(tag, str) else tag for tag in tags]
    known = tuple(tag for tag in TAGS if tag in normalized)
    other = [tag for tag, name in zip(tags, normalized, strict=True) if name not in TAGS]
    return known, other or None


def extra_of(fields: Mapping[str, Any], *, exclude: Iterable[str] = ()) -> str | None:
    """Return other fields as JSON to be sealed, or None; vectors and secrets are dropped."""
    kept = {
        name: _without_secrets(value)
        for name, value in fields.items()
        if name not in exclude and not _is_dropped(name)
    }
    kept = {name: value for name, value in kept.items() if value not in (None, [], {}, "")}
    if not kept:
        return None
    text = _extra_json(kept)
    if len(text) > MAX_EXTRA_CHARACTERS:
        raise InvalidValue(
            f"has {len(text):,} characters in other fields; at most "
            f"{MAX_EXTRA_CHARACTERS:,} are kept"
        )
    return text


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_secrets(inner) for name, inner in value.items() if not _is_dropped(name)
        }
    return [_without_secrets(inner) for inner in value] if isinstance(value, list) else value


@lru_cache  # the rows of a file have the same fields
def _is_dropped(name: str) -> bool:
    return name in _VECTORS or _SECRET.search(_HUMP.sub("_", name)) is not None
