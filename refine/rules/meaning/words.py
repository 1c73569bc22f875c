"""Words for comparison: their stems, and their weights by rarity."""

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from math import log10
from pathlib import Path
from typing import Any

import Stemmer
from rapidfuzz.distance import OSA
from stopwordsiso import stopwords
from wordfreq import get_frequency_dict

from refine.rules.folding import fold

_CHANGING = ("negations", "contrasts", "conditions", "hedges", "occasions")
_REMEMBERED = 1 << 16
_POSSESSIVE = re.compile(r"['’]s?$")

# A word counts as much as it is rarer than the commonest words: by powers of ten in a billion.
_COMMON, _RARE = 6.0, 2.0
# A misspelt word is rare, and its right form is not.
_RARE_MISTAKE, _COMMON_ENOUGH, _RARER = 3.1, 3.3, 1.3
_LONG_WORD = 7
# As few known words do not tell the language of a text.
_FEW = 2


@cache
def _vocabulary() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("vocabulary.toml").read_text(encoding="utf-8"))


@cache
def listed(table: str, language: str) -> frozenset[str]:
    """Return the words of one of the tables of ``vocabulary.toml``."""
    return frozenset(fold(word) for word in _vocabulary()[table].get(language, "").split())


@cache
def roles(language: str) -> dict[str, tuple[str, ...]]:
    """Return the words that change a meaning, with the tables that list each."""
    tables = (*_CHANGING, "saying", "asking", "that")
    words = {word for table in tables for word in listed(table, language)}
    return {word: tuple(t for t in tables if word in listed(t, language)) for word in words}


@cache
def one_of(table: str, language: str) -> re.Pattern[str]:
    """Return a pattern of the words of a table, the longest first."""
    words = (each.replace("_", " ") for each in listed(table, language))
    either = "|".join(map(re.escape, sorted(words, key=len, reverse=True))) or "(?!)"
    either = either if language in ("zh", "ja", "ko") else rf"\b(?:{either})\b"
    return re.compile(either, re.IGNORECASE)


@cache
def opposites(language: str) -> dict[str, set[str]]:
    """Return the keys of words, and of those that say their opposite."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for pair in _vocabulary()["opposites"].get(language, "").split():
        one, other = (stem(fold(word), language) for word in pair.split("/"))
        found[one].add(other)
        found[other].add(one)
    return dict(found)


@cache
def _same(language: str) -> dict[str, str]:
    """Return the keys of irregular forms and synonyms, and which key stands for each."""
    same: dict[str, str] = {}
    for table in ("synonyms", "irregular"):
        for entry in _vocabulary()[table].get(language, "").split():
            word, _, others = entry.partition("=")
            key = _ending_cut(fold(word), language)
            for each in others.split(","):
                same[_ending_cut(fold(each), language)] = same.get(key, key)
    return same


@cache
def pairs(table: str, language: str) -> dict[str, str]:
    """Return the entries of a table like ``two=2``."""
    entries = (each.partition("=") for each in _vocabulary()[table].get(language, "").split())
    return {fold(word): meant for word, _, meant in entries}


@cache
def _small_words(language: str) -> frozenset[str]:
    stop = frozenset(map(fold, stopwords(language))) - listed("telling", language)
    return stop.union(*(listed(table, language) for table in ("fillers", "negations", "hedges")))


@cache
def _languages_of() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for language in _vocabulary()["languages"]:
        for word in stopwords(language):
            found.setdefault(fold(word), []).append(language)
    return found


def guess_language(words: Iterable[str], otherwise: str = "en") -> str:
    """Return the language of most of these folded words; the other one at a tie of few."""
    known = _languages_of()
    counts = Counter(language for word in words for language in known.get(word, ()))
    likely: str = max(_vocabulary()["languages"], key=counts.__getitem__)
    return otherwise if counts[likely] == counts[otherwise] <= _FEW else likely


@cache
def _stemmer(language: str) -> Callable[[str], str]:
    name = _vocabulary()["languages"].get(language)
    return Stemmer.Stemmer(name).stemWord if name else str


@lru_cache(_REMEMBERED)
def stem(word: str, language: str) -> str:
    """Return the stem of a folded word, the same for its synonyms."""
    word = _POSSESSIVE.sub("", word)
    key = _ending_cut(word, language)
    # er spielt, spielte: spielen
    if language == "de" and key[-1:] == "t" and frequency(f"{key[:-1]}en", "de") > _RARE_MISTAKE:
        key = key[:-1]
    return _same(language).get(key, key)


def _ending_cut(word: str, language: str) -> str:
    return _stemmer(language)(word) if word.isalpha() else word


@lru_cache(_REMEMBERED)
def frequency(word: str, language: str) -> float:
    """Return how common a folded word is, as a power of ten in a billion words; 0 if unknown."""
    share = get_frequency_dict(language, "small").get(word, 0)
    return log10(share) + 9 if share else 0


@lru_cache(_REMEMBERED)
def rarity(word: str, language: str) -> float:
    """Return the weight of a folded word by its rarity, from 0 (says nothing by itself) to 1."""
    word = _POSSESSIVE.sub("", word)
    if is_small(word, language):
        return 0
    common = max(frequency(word, language), frequency(word, "en") - (language != "en"))
    return max(0.0, min(_COMMON - common, _COMMON - _RARE)) / (_COMMON - _RARE)


def is_small(word: str, language: str) -> bool:
    return len(word) == 1 or re.sub("['’].*", "", word) in _small_words(language)


@lru_cache(_REMEMBERED)
def is_misspelling(word: str, other: str, language: str) -> bool:
    if word[:1] != other[:1] or not (word.isalpha() and other.isalpha()):
        return False
    shorter = min(len(word), len(other))
    allowed = 1 if shorter < _LONG_WORD else 2
    if shorter < 3 or OSA.distance(word, other, score_cutoff=allowed) > allowed:
        return False
    rare, common = sorted((frequency(word, language), frequency(other, language)))
    return rare < _RARE_MISTAKE and common > max(_COMMON_ENOUGH, rare + _RARER)
