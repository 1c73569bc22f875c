"""Splits a text that is too long for one memory where a reader would pause."""

import re
from collections.abc import Iterator, Sequence

from refine.errors import InvalidValue
from refine.rules.content import MAX_CONTENT_CHARACTERS

# From the best place to cut to the worst; a text without any is cut at the limit.
_PAUSES = (
    re.compile(r"\n[^\S\n]*\n\s*"),  # between paragraphs
    re.compile(r"\n\s*"),  # between lines
    re.compile(r"(?<=[.!?…。！？])\s+"),  # between sentences
    re.compile(r"\s+"),  # between words
)


def split(text: str, limit: int = MAX_CONTENT_CHARACTERS) -> list[str]:
    """Return ``text`` in trimmed parts of 1 to ``limit`` characters; a blank text has none.

    Cuts between paragraphs if possible, else between lines, sentences or words. Only blanks at the
    cuts are lost.
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
    """Return where the first part of ``text`` ends: at the last pause of the best kind found."""
    window = text[: limit + 1]
    for pause in _PAUSES:
        starts = [found.start() for found in pause.finditer(window)]
        if starts:
            return starts[-1]
    return limit


def last_that_fit(lines: Sequence[str], room: int) -> list[str]:
    """Return the last lines that fit into ``room`` characters, in order; leave out longer ones."""
    fitting: list[str] = []
    for line in reversed(lines):
        if len(line) <= room:
            fitting.append(line)
            room -= len(line)
    return fitting[::-1]


def packed(lines: Sequence[str], room: int) -> list[list[str]]:
    """Return the lines in order, in as few parts of at most ``room`` characters as possible.

    Raises InvalidValue if a single line is longer than that.
    """
    parts: list[list[str]] = []
    left = 0
    for line in lines:
        if len(line) > room:
            raise InvalidValue(f"a line has {len(line):,} characters; at most {room:,} fit")
        if not parts or len(line) > left:
            parts.append([])
            left = room
        parts[-1].append(line)
        left -= len(line)
    return parts
