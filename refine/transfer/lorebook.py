"""Lorebooks and character cards (JSON or PNG): of SillyTavern, NovelAI, Agnai, Pygmalion."""

import re
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
# What a card says of its character, in any version; all else is no memory.
_NAMES = ("nickname", "name", "char_name")
_OF_CHARACTER = ("description", "char_persona", "personality", "scenario", "world_scenario")
_OTHERS = (
    *("first_mes", "mes_example", "alternate_greetings", "group_only_greetings", "system_prompt"),
    *("char_greeting", "example_dialogue", "post_history_instructions", "creator_notes"),
)
_MACRO = re.compile(r"(?i)\{\{char\}\}|<bot>|<char>")


def recognizes(source: Source) -> bool:
    sample = source.sample
    if not isinstance(sample, dict):
        return False
    entry = first_of(_entries(_inner(sample)))
    is_book = any(name in entry for name in _TEXTS) and any(name in entry for name in _KEYS)
    return is_book or _is_card(sample)


def read(source: Source, wanted: Wanted) -> Iterator[Row]:
    document: dict[str, Any] = source.document if isinstance(source.document, dict) else {}
    card = _inner(document)
    if not (_is_card(document) or _entries(card)):
        raise InvalidValue("holds no entries and no character")
    name = ""
    if _is_card(document):
        name = first_text(card, *_NAMES) or "Character"
        yield from _character(card, name)
    for book in (card, card.get("character_book")):
        yield from rows_of_objects("entry", _entries(book), partial(_entry, name, wanted=wanted))


def _inner(document: dict[str, Any]) -> dict[str, Any]:
    """Return what stands in an envelope: a card of version 2 or 3, or a lorebook of version 3."""
    inner = document.get("data")
    return inner if isinstance(inner, dict) else document


def _is_card(document: Mapping[str, Any]) -> bool:
    return str(document.get("spec")).startswith("chara_card") or any(
        each <= document.keys() for each in ({"name", "first_mes"}, {"char_name", "char_persona"})
    )


def _entries(book: Any) -> list[Any]:
    entries = book.get("entries") if isinstance(book, dict) else None
    return list(entries.values() if isinstance(entries, dict) else entries or ())


def _character(card: Mapping[str, Any], name: str) -> Iterator[Row]:
    for field in _OF_CHARACTER:
        if first_text(card, field):
            about = f"{name}, {field.removeprefix('char_').replace('_', ' ')}"
            given = {field: _MACRO.sub(lambda _: name, card[field]), "tags": card.get("tags")}
            yield memory_in(field, given, field, prefix=subject_prefix(about), within=name)
    if any(card.get(other) for other in _OTHERS):
        yield LeftOut("greetings, examples, prompts and notes beside a character")


def _entry(name: str, place: str, given: dict[str, Any], *, wanted: Wanted) -> Iterator[Row]:
    texts = {field: given[field] for field in _TEXTS if isinstance(given.get(field), str)}
    plain = {field: _MACRO.sub(lambda _: name, text) for field, text in texts.items()}
    entry = given | plain if name else given
    is_off = entry.get("enabled") is False or entry.get("disable") is True
    if is_off and not wanted.archived:
        yield LeftOut("disabled entries; use --include-archived to import them")
        return
    keys: Any = next((entry[name] for name in _KEYS if entry.get(name)), [])
    words = keys if isinstance(keys, list) else str(keys).split(",")
    title = first_text(entry, *_TITLES) or str(words[0] if words else "")
    yield memory_in(place, entry, *_TEXTS, prefix=subject_prefix(title), within=title)
