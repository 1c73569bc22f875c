"""What the readers of all formats yield, and what they share."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple

from refine import clock
from refine.errors import InvalidValue
from refine.rules.content import TAGS
from refine.rules.instants import instant
from refine.rules.personal import looks_personal
from refine.rules.received_json import check_json, strict_json_values, unchecked_json

MAX_DOCUMENT_BYTES = 256_000_000
MAX_LINE_BYTES = 2_000_000
MAX_EXTRA_CHARACTERS = 50_000
MAX_PREFIX_CHARACTERS = 1_000
_MAX_FIELDS = 1_000
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

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


def read_document(stream: BinaryIO) -> Any:
    """Return a JSON document, its rows unchecked; InvalidValue if it is damaged or too large."""
    raw = stream.read(MAX_DOCUMENT_BYTES + 1)
    if len(raw) > MAX_DOCUMENT_BYTES:
        raise InvalidValue(
            f"is longer than {MAX_DOCUMENT_BYTES:,} bytes: split its rows into several files"
        )
    return unchecked_json(raw.removeprefix(_BYTE_ORDER_MARK))


def rows_of_objects(
    noun: str, values: Iterable[Any], make: Callable[[str, dict[str, Any]], Row]
) -> Iterator[Row]:
    for number, value in enumerate(values, 1):
        place = f"{noun} {number}"
        try:
            check_json(value, max_fields=_MAX_FIELDS)
            yield make(place, json_object(value))
        except InvalidValue as error:
            yield BadRow(place, str(error))


def numbered_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yield each line that is not blank with its number; None is a line that is too long."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE_BYTES)
            yield number, None
        elif (row := line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line).strip():
            yield number, row


def line_values(line: bytes | None) -> list[Any]:
    """Return the JSON values of a line of ``numbered_lines``; InvalidValue says what is wrong."""
    if line is None:
        raise InvalidValue(f"must not be longer than {MAX_LINE_BYTES:,} bytes")
    return strict_json_values(line, max_bytes=MAX_LINE_BYTES, max_fields=_MAX_FIELDS)


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
    return Incoming(
        place=place,
        content=content,
        tags=tags,
        created_at=time_in(row),
        extra=extra_of({**row, "tags": others}, exclude=(*used, "created_at")),
        **fields,
    )


def subject_prefix(subject: str) -> str:
    """Return ``subject`` on one line, to stand before a content; InvalidValue if it is too long."""
    line = " ".join(subject.split())
    if len(line) > MAX_PREFIX_CHARACTERS:
        raise InvalidValue(
            f"has {len(line):,} characters in its name, type or label; at most "
            f"{MAX_PREFIX_CHARACTERS:,} are allowed"
        )
    return f"{line} "


def plain_id(row: Mapping[str, Any]) -> str | None:
    value = row.get("id")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value.strip() or None if isinstance(value, str) else None


def is_opaque(id_: str) -> bool:
    """Tell whether an id may be shown: what could be words, or a phone number, is content."""
    return _OPAQUE_ID.fullmatch(id_) is not None and not looks_personal(id_)


def time_in(row: Mapping[str, Any], name: str = "created_at") -> datetime | None:
    try:
        return instant(row.get(name), now=clock.now())
    except InvalidValue as error:
        raise InvalidValue(f"{name} {error}") from None


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
