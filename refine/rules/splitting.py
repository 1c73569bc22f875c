"""Splits a text that is too long for one memory where a reader would pause."""

import re
from collections.abc import Iterator

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
