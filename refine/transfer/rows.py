"""What a reader finds in a file: memories, and places where there is none."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO, Protocol

from refine import clock
from refine.errors import InvalidValue
from refine.rules.content import TAGS
from refine.rules.instants import instant

SOURCES = ("letta", "mem0", "mcp", "refine")  # as in ``formats.READERS``

MAX_EXTRA_CHARACTERS = 50_000

# Numbers, UUIDs, digests, and ``.2`` for the second part of a text that was split.
_OPAQUE_ID = re.compile(r"[0-9a-fA-F-]{1,64}(\.[0-9]{1,4})?")

# Vectors belong to the index of the system that they come from.
_VECTORS = frozenset({"embedding", "embeddings", "vector", "embedding_config"})

# What may hold the key to something else is never taken.
_SECRET = re.compile(
    r"(?i)(^|[_-])(secrets?|passwords?|passwd|pwd|passphrase|credentials?|cookies?|auth|"
    r"(api|private|secret|access)[_-]?keys?|token|authorization|environment[_-]variables)$"
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, kw_only=True)
class Incoming:
    """A memory as its file has it; its content may still be too long, and its tags unknown ones.

    ``source_id`` is its id where it comes from. Where it has none, its content tells it apart,
    ``within`` the thing that it belongs to. ``memory_type`` None: the importer chooses.
    """

    place: str
    content: str
    memory_type: str | None = None
    tags: tuple[str, ...] = ()
    constitutional: bool = False
    created_at: datetime | None = None
    discarded_at: datetime | None = None
    source: str | None = None
    source_id: str | None = None
    within: str = ""
    extra: str | None = None


@dataclass(frozen=True)
class BadRow:
    """A place where a memory should be, and why there is none."""

    place: str
    reason: str


@dataclass(frozen=True)
class LeftOut:
    """A row that is well formed and no memory; ``kind`` says in a word or two what it is."""

    kind: str


Row = Incoming | BadRow | LeftOut


class Reader(Protocol):
    """Reads one format; the stream stands at its beginning."""

    def __call__(self, stream: BinaryIO) -> Iterator[Row]:
        """Yield what there is, in order; hold no more than one row of it."""


def first_text(row: Mapping[str, Any], *names: str) -> str | None:
    """Return the first of the fields that is a text with something in it; "" where all are blank.

    None where none of them is a text.
    """
    texts = [row[name] for name in names if isinstance(row.get(name), str)]
    return next((text for text in texts if text.strip()), "" if texts else None)


def plain_id(row: Mapping[str, Any], name: str = "id") -> str | None:
    """Return an id, a text or a whole number; None where there is none."""
    given = row.get(name)
    if isinstance(given, int) and not isinstance(given, bool):
        return str(given)
    return given.strip() or None if isinstance(given, str) else None


def is_opaque(id_: str) -> bool:
    """Tell whether an id can be shown: whatever could be words is content."""
    return _OPAQUE_ID.fullmatch(id_) is not None


def time_in(row: Mapping[str, Any], name: str = "created_at") -> datetime | None:
    """Return the time in a field; InvalidValue names the field."""
    try:
        return instant(row.get(name), now=clock.now())
    except InvalidValue as error:
        raise InvalidValue(f"{name} {error}") from None


def known_and_other_tags(tags: object) -> tuple[tuple[str, ...], Any]:
    """Return the tags that Refine knows, and what else was given (None: nothing)."""
    if not isinstance(tags, list):
        return (), tags
    spelt = [tag.strip().lower() if isinstance(tag, str) else tag for tag in tags]
    known = tuple(tag for tag in TAGS if tag in spelt)
    other = [tag for tag, spelling in zip(tags, spelt, strict=True) if spelling not in TAGS]
    return known, other or None


def extra_of(fields: Mapping[str, Any], *, but: Iterable[str] = ()) -> str | None:
    """Return the fields that Refine has no column for as JSON, to be kept sealed; None: none.

    Without vectors, and without whatever may be a secret.
    """
    kept = _harmless({name: value for name, value in fields.items() if name not in set(but)})
    kept = {name: value for name, value in kept.items() if value not in (None, [], {}, "")}
    if not kept:
        return None
    text = json.dumps(kept, ensure_ascii=False, sort_keys=True)
    if len(text) > MAX_EXTRA_CHARACTERS:
        raise InvalidValue(
            f"its other fields have {len(text):,} characters; "
            f"at most {MAX_EXTRA_CHARACTERS:,} are kept"
        )
    return text


def _harmless(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _harmless(inner)
            for name, inner in value.items()
            if name not in _VECTORS and not _SECRET.search(_HUMP.sub("_", name))
        }
    return [_harmless(inner) for inner in value] if isinstance(value, list) else value
