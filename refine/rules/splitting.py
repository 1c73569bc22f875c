"""A text that is too long for one memory, cut where a reader would pause."""

import re
from collections.abc import Iterator, Sequence

from refine.errors import InvalidValue
from refine.rules.content import MAX_CONTENT_CHARACTERS

# From the best place for a cut to the worst; a text without any is cut where it is full.
_PAUSES = (
    re.compile(r"\n[^\S\n]*\n\s*"),  # between paragraphs
    re.compile(r"\n\s*"),  # between lines
    re.compile(r"(?<=[.!?…。！？])\s+"),  # between sentences
    re.compile(r"\s+"),  # between words
)


def split(text: str, limit: int = MAX_CONTENT_CHARACTERS) -> list[str]:
    """Return ``text`` in parts of at most ``limit`` characters, trimmed, none of them blank.

    Cut between paragraphs where there are any; else between lines, sentences, words. Nothing but
    the blanks at the cuts is lost; a blank text has no parts.
    """
    return list(_parts(text.strip(), limit))


def _parts(rest: str, limit: int) -> Iterator[str]:
    while len(rest) > limit:
        cut = _cut(rest, limit)
        yield rest[:cut].rstrip()
        rest = rest[cut:].lstrip()
    if rest:
        yield rest


def _cut(text: str, limit: int) -> int:
    """Return where the first part of ``text`` ends: the last pause of the best kind there is."""
    window = text[: limit + 1]
    for pause in _PAUSES:
        starts = [found.start() for found in pause.finditer(window)]
        if starts:
            return starts[-1]
    return limit


def packed(lines: Sequence[str], room: int) -> list[list[str]]:
    """Return the lines in as few parts as their order allows, each of at most ``room`` characters.

    Raises InvalidValue where a single line is longer than that.
    """
    parts: list[list[str]] = []
    left = 0
    for line in lines:
        if len(line) > room:
            raise InvalidValue(f"one line of {len(line):,} characters; there is room for {room:,}")
        if not parts or len(line) > left:
            parts.append([])
            left = room
        parts[-1].append(line)
        left -= len(line)
    return parts
