"""The texts of hostile models, which keep as little as the rules allow."""

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache

from bench.saying import words_of
from refine.rules.meaning import is_said
from refine.rules.meaning.reading import read

_SHARE = Decimal("0.65")
_DENSE = re.compile("[\u3040-\u30ff\u3400-\u9fff]")


@lru_cache(maxsize=20_000)
def bare_details(text: str) -> str:
    """Return the bare details of a text as a list."""
    reading = read(text)
    return ", ".join(reading.written[key] for key in reading.details)


@lru_cache(maxsize=20_000)
def trimmed(text: str) -> str:
    """Return a text without the words that the rules do not require, trying the last ones first."""
    pieces = _pieces(text)
    for at in reversed(range(len(pieces))):
        shorter = pieces[:at] + pieces[at + 1 :]
        if is_said(text, ["".join(shorter)], _SHARE):
            pieces = shorter
    return " ".join("".join(pieces).split())


def joined(texts: Sequence[str], characters: int) -> str:
    """Return texts one after another, at most so many characters of them."""
    return " ".join(texts)[:characters].strip()


def thinned(text: str, every: int) -> str:
    """Return a text without every fourth (or so) of the words that say something."""
    said, left = 0, []
    for piece in _pieces(text):
        said += (is_content := bool(words_of(piece, "en")))
        if not is_content or said % every:
            left.append(piece)
    return "".join(left).strip()


def first_words(text: str) -> str:
    """Return about the first half of a text."""
    pieces = _pieces(text)
    return "".join(pieces[: (len(pieces) + 1) // 2]).strip()


def _pieces(text: str) -> list[str]:
    """Return the words with the spaces before them; single characters where there are no spaces."""
    pieces: list[str] = []
    for word in re.findall(r"\s*\S+", text):
        pieces += list(word) if _DENSE.search(word) else [word]
    return pieces
