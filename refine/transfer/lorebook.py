"""Lorebooks and character cards: of SillyTavern, NovelAI, Agnai, and what follows the card spec."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from refine.errors import InvalidValue
from refine.transfer.rows import (
    LeftOut,
    Row,
    Wanted,
    first_of,
    first_text,
    memory_in,
    rows_of_objects,
    subject_prefix,
)
from refine.transfer.sources import Source

_TEXTS = ("content", "text", "entry")
_TITLES = ("comment", "name", "displayName")
_KEYS = ("keys", "key", "keywords")
# What a card says of its character; its greetings and examples are no memories.
_OF_CHARACTER = ("description", "personality", "scenario", "creator_notes")
_SPOKEN = ("first_mes", "mes_example", "alternate_greetings", "group_only_greetings")


def recognizes(source: Source) -> bool:
    sample = source.sample
    if not isinstance(sample, dict):
        return False
    entry = first_of(_entries(sample))
    is_book = any(name in entry for name in _TEXTS) and any(name in entry for name in _KEYS)
    return is_book or _is_card(sample)


def read(source: Source, wanted: Wanted) -> Iterator[Row]:
    document: dict[str, Any] = source.document if isinstance(source.document, dict) else {}
    inner = document.get("data")
    card: dict[str, Any] = inner if isinstance(inner, dict) else document
    if not (_is_card(document) or _entries(card)):
        raise InvalidValue("holds no entries and no character")
    if _is_card(document):
        yield from _character(card)
    for book in (card, card.get("character_book")):
        yield from rows_of_objects("entry", _entries(book), partial(_entry, wanted=wanted))


def _is_card(document: Mapping[str, Any]) -> bool:
    return str(document.get("spec")).startswith("chara_card") or {"name", "first_mes"} <= (
        document.keys()
    )


def _entries(book: Any) -> list[Any]:
    entries = book.get("entries") if isinstance(book, dict) else None
    return list(entries.values() if isinstance(entries, dict) else entries or ())


def _character(card: Mapping[str, Any]) -> Iterator[Row]:
    name = first_text(card, "name") or "Character"
    for field in _OF_CHARACTER:
        if first_text(card, field):
            about = f"{name}, {field.replace('_', ' ')}:"
            given = {field: card[field].replace("{{char}}", name), "tags": card.get("tags")}
            yield memory_in(field, given, field, prefix=subject_prefix(about), within=name)
    if any(card.get(name) for name in _SPOKEN):
        yield LeftOut("greetings and examples of a character's speech")


def _entry(place: str, entry: dict[str, Any], *, wanted: Wanted) -> Iterator[Row]:
    is_off = entry.get("enabled") is False or entry.get("disable") is True
    if is_off and not wanted.archived:
        yield LeftOut("disabled entries; use --include-archived to import them")
        return
    keys: Any = next((entry[name] for name in _KEYS if entry.get(name)), [])
    words = keys if isinstance(keys, list) else str(keys).split(",")
    title = first_text(entry, *_TITLES) or str(words[0] if words else "")
    yield memory_in(
        place,
        entry,
        *_TEXTS,
        prefix=subject_prefix(f"{title.strip()}:") if title else "",
        within=title,
    )
