"""How a text is split: words, numbers, dates, times, and runs of scripts without spaces."""

import re
import unicodedata
from itertools import pairwise
from typing import NamedTuple

# Han, kana, Hangul, Thai, Lao, Khmer, Burmese: no spaces, or particles joined to words.
UNSPACED = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uac00-\ud7af\U00020000-\U0003ffff\u0e00-\u0eff\u1000-\u109f\u1780-\u17d2"
)
# Vowel signs and accents that Python does not count as parts of words.
_MARKS = "".join(
    chr(code)
    for code in (*range(0x300, 0x370), *range(0x483, 0x488), *range(0x900, 0xE00))
    if unicodedata.category(chr(code)).startswith("M")
)
_LETTERS = rf"[^\W_{UNSPACED}]+(?:[{_MARKS}]+[^\W_{UNSPACED}]*)*"

# The lookahead spares most characters of a text the search for numbers.
_TOKEN = re.compile(
    rf"""
    (?=[\d+(.\-−–vV])(?:
        (?P<date>(?<!\d)(?:\d{{4}}([-/.])\d{{1,2}}\2\d{{1,2}}
            | \d{{1,2}}([-/.])\d{{1,2}}\3(?:\d{{4}}|\d{{2}}))(?![-/.]?\d))
        | (?P<eastern_date>(?:\d{{4}}\s?[年년]\s?)?\d{{1,2}}\s?[月월](?:\s?\d{{1,2}}\s?[日号號일])?)
        | (?P<eastern_time>(?<!\d)\d{{1,2}}\s?
            [时時点點시](?:\s?\d{{1,2}}\s?[分분]|\s?[半반])?)
        | (?P<time>(?<![\d.])(?:[01]?\d|2[0-4])(?:
              [:h][0-5]\d(?::[0-5]\d)?(?:\s?[aApP]\.?[mM]\b)?
            | (?:\.[0-5]\d)?\s?[aApP]\.?[mM]\b
            | (?:\.[0-5]\d)?\s?(?i:uhr|o['’]clock)\b)(?!\d))
        | (?P<phone>(?:\+|(?<!\d)00)\d[\d\ ()./-]{{5,18}}\d
            | (?:\((?=\d{{3,5}}\)))?(?<!\d)\d{{3,5}}\)?[-\ ]\d{{3}}-\d{{4}}(?!\d)
            | (?<!\d)(?:\d{{2,4}}-\d{{3,4}}|\d{{3}})-\d{{4}}(?!\d)
            | (?<!\d)\d{{3}}\ \d{{4}}\ \d{{4}}(?!\d)|(?<!\d)0\d(?:[\ .]\d\d){{4}}(?![\d.]))
        | (?P<number>(?:(?<![\w)\]])[-−](?=\.?\d)|(?<![^\s([])–(?=\.?\d))?(?:(?<!\w)[vV](?=\d))?
            (?:\d{{1,3}}(?:\ \d{{3}}(?!\d))+(?:[.,]\d+)?|\d+(?:[.,'’٫٬/]\d+)*
              |(?<![\w.,)\]…])\.\d+)))
    | (?P<word>{_LETTERS}(?:(?:['’ʼ`]|(?<=[א-ת])["״](?=[א-ת])){_LETTERS})*)
    | (?P<unspaced>[{UNSPACED}]+)
    """,
    re.VERBOSE,
)
# The T of 2026-03-03T15:30.
_DATE_AND_TIME = re.compile(r"(?<=\d)T(?=\d\d:\d\d)")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_APOSTROPHES = re.compile("['’ʼ`]")
_CYRILLIC = re.compile("[\u0400-\u052f]")
_CONTRACTIONS = frozenset({"ve", "ll", "re", "d", "m", "t", "s", "nt", "em"})


class Token(NamedTuple):
    """A piece of a text: its kind (a group of the pattern), its characters, where it stands."""

    kind: str
    text: str
    start: int
    end: int


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a clean text, in order."""
    text = _DATE_AND_TIME.sub(" ", text)
    return [
        Token(found.lastgroup or "", found.group(), found.start(), found.end())
        for found in _TOKEN.finditer(text)
    ]


def longest_part(word: str) -> str:
    """Return a word without possessives, elisions and endings after apostrophes.

    ``Anna's`` gives ``Anna``, ``d'Anna`` and ``Su'nun`` as well, ``O'Brien`` gives ``Brien``.
    """
    if word.isalnum():
        return word
    if _CYRILLIC.match(word):  # a letter of Ukrainian words
        return _APOSTROPHES.sub("", word)
    parts = _APOSTROPHES.split(word)
    if len(parts[0]) > 1 and parts[0][0].isupper() and parts[-1].islower():
        return parts[0]
    whole = [part for part in parts if part.lower() not in _CONTRACTIONS]
    return max(whole or parts, key=len)


def has_unspaced(text: str) -> bool:
    """Tell whether a text has characters of a script without spaces."""
    return _UNSPACED.search(text) is not None


def pairs(run: str) -> set[str]:
    """Return the pairs of adjacent characters of a run; the character where it has one alone."""
    return {first + second for first, second in pairwise(run)} or set(run)
