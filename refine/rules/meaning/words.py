"""Words for comparison: their stems, and their weights by rarity."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import cache, lru_cache
from math import log10
from pathlib import Path
from typing import Any

import Stemmer
from rapidfuzz.distance import OSA
from stopwordsiso import stopwords
from wordfreq import get_frequency_dict

from refine.rules.meaning.folding import fold

# The known languages, with the names of their stemmers.
LANGUAGES = {
    "en": "english", "de": "german", "fr": "french", "es": "spanish", "it": "italian",
    "pt": "portuguese", "nl": "dutch", "sv": "swedish", "da": "danish", "fi": "finnish",
    "pl": "polish", "cs": "czech", "tr": "turkish", "ru": "russian", "uk": "", "el": "greek",
    "ar": "arabic", "he": "", "hi": "hindi",
}  # fmt: skip
_REMEMBERED = 1 << 16
_POSSESSIVE = re.compile(r"['’]s?$")

# A word counts as much as it is rarer than the commonest words: by powers of ten in a billion.
_COMMON, _RARE = 6.0, 2.0
# A misspelt word is rare, and its right form is not.
_RARE_MISTAKE, _COMMON_ENOUGH, _RARER = 3.1, 3.3, 1.3
_LONG_WORD = 7


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
    tables = ("negations", "conditions", "hedges", "occasions", "nearby", "times")
    found: dict[str, tuple[str, ...]] = {}
    for table in tables:
        for word in listed(table, language):
            found[word] = (*found.get(word, ()), table)
    return found


@cache
def _irregular(language: str) -> dict[str, str]:
    """Return irregular forms, such as ``went``, with their base words."""
    pairs = (each.split("=") for each in _vocabulary()["irregular"].get(language, "").split())
    return {fold(form): word for word, forms in pairs for form in forms.split(",")}


@cache
def number_words(language: str) -> dict[str, int]:
    """Return the number words of a language that no library reads."""
    words = map(fold, _vocabulary()["numbers"].get(language, "").split())
    values = [*range(20), *range(20, 100, 10)]
    others = _vocabulary()["other_numbers"].get(language, "").split()
    pairs = (each.split("=") for each in others)
    return dict(zip(words, values, strict=False)) | {fold(word): int(n) for word, n in pairs}


@cache
def _small_words(language: str) -> frozenset[str]:
    stop = frozenset(map(fold, stopwords(language))) - listed("telling", language)
    return stop.union(*(listed(table, language) for table in ("fillers", "negations", "hedges")))


@cache
def _languages_of() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for language in LANGUAGES:
        for word in stopwords(language):
            found.setdefault(fold(word), []).append(language)
    return found


def guess_language(words: Iterable[str]) -> str:
    """Return the language of most of these folded words; English at a tie."""
    known = _languages_of()
    counts = Counter(language for word in words for language in known.get(word, ()))
    return max(LANGUAGES, key=counts.__getitem__)


@cache
def _stemmer(language: str) -> Stemmer.Stemmer | None:
    return Stemmer.Stemmer(LANGUAGES[language]) if LANGUAGES[language] else None


@lru_cache(_REMEMBERED)
def stem(word: str, language: str) -> str:
    """Return the stem of a folded word."""
    word = _POSSESSIVE.sub("", word)
    word = _irregular(language).get(word, word)
    stemmer = _stemmer(language)
    return stemmer.stemWord(word) if stemmer is not None and word.isalpha() else word


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
