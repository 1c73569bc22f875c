"""Words for comparison: one form for all their writings, their stems, their weights by rarity, and
what they name: months, days, units.
"""

import re
import tomllib
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from math import log10
from pathlib import Path
from typing import Any

import Stemmer
from babel import Locale
from babel.numbers import get_currency_name
from babel.units import format_unit
from rapidfuzz.distance import OSA
from stopwordsiso import stopwords
from wordfreq import get_frequency_dict

# Han, kana, Hangul, Thai, Lao, Khmer, Burmese: no spaces, or particles joined to words.
UNSPACED = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uac00-\ud7af\U00020000-\U0003ffff\u0e00-\u0eff\u1000-\u109f\u1780-\u17d2"
)
_FIRST_UNSPACED = "\u2e80"
_SCRIPTS = {"ja": "[\u3040-\u30ff]", "ko": "[\uac00-\ud7af]", "zh": "[\u3400-\u9fff]"}
# Not visible: soft hyphens, joiners, direction marks, variation selectors, blank letters.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)
# Vowel signs and other marks that Arabic and Hebrew are mostly written without; the Arabic stretch.
_OPTIONAL_MARKS = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670]"
)
# NFKC would turn 10² into 102, and 1½ into 11/2.
_RAISED_DIGIT = re.compile("([⁰¹²³⁴-⁹]+)")
_FRACTION = re.compile("([¼-¾⅐-⅞↉])")

_GREEK = re.compile("[\u0370-\u03ff\u1f00-\u1fff]")
_GREEK_ACCENTS = re.compile("[\u0300\u0301\u0313\u0314\u0342]")
# Turkish i, Russian yo, letters that Arabic and Persian keyboards write differently; marks of
# Hebrew abbreviations.
_VARIANTS = str.maketrans("ıёأإآٱیک", "iе\u0627\u0627\u0627\u0627\u064a\u0643", '"״')
_DOTTED_I = "i\u0307"

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

_CURRENCIES = ("EUR", "USD", "GBP", "CHF", "JPY", "INR", "CNY", "RUB", "PLN", "CZK", "SEK", "TRY")
_FAMILIES = ("duration", "length", "mass", "volume", "temperature", "digital", "area", "power")


def clean(text: str) -> str:
    """Return ``text`` in NFKC, without invisible characters and optional marks."""
    if text.isascii():
        return text
    text = _INVISIBLE.sub("", text)
    if not unicodedata.is_normalized("NFKC", text):
        text = _FRACTION.sub(r" \1", _RAISED_DIGIT.sub(r"^\1", text))
        text = unicodedata.normalize("NFKC", text).replace("\u2044", "/")
    return unicodedata.normalize("NFKC", _OPTIONAL_MARKS.sub("", text))


@lru_cache(maxsize=1 << 15)
def fold(word: str) -> str:
    """Return one form for all writings of a word; diacritics stay, except optional ones (ё, أ)."""
    if word.isascii():
        return word.lower()
    folded = (
        unicodedata.normalize("NFKC", word).casefold().replace(_DOTTED_I, "i").translate(_VARIANTS)
    )
    if _GREEK.search(folded):
        folded = _GREEK_ACCENTS.sub("", unicodedata.normalize("NFD", folded)).casefold()
    return unicodedata.normalize("NFKC", folded)


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


def language_of(text: str, likely: str = "en") -> str:
    return guess_language(map(fold, re.findall(r"[^\W\d_]+", text)), likely)


def is_unspaced(key: str) -> bool:
    """Tell whether a key is a part of a text without spaces: two neighbouring characters."""
    return key[0] > _FIRST_UNSPACED


def is_light(character: str) -> bool:
    """Tell whether a character of a script without spaces says little by itself."""
    return "\u3040" <= character <= "\u309f" or character in {" ", *listed("fillers", "zh")}


def script_of(text: str) -> str:
    """Return the language of a text without spaces, as its script tells; else nothing."""
    return next((language for language, script in _SCRIPTS.items() if re.search(script, text)), "")


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


def is_noun(word: str, language: str) -> bool:
    """Tell whether a word has a capital because all nouns have one."""
    return language == "de" and frequency(word, "de") > frequency(word, "en") + 1


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


@cache
def _locales(language: str) -> list[Locale]:
    return [Locale.parse(name) for name in dict.fromkeys((language, "en", "en_GB"))]


@cache
def months(language: str) -> dict[str, int]:
    found: dict[str, int] = {"sept": 9}
    for locale in _locales(language):
        for context in locale.months.values():
            for width in ("wide", "abbreviated"):
                for number, name in context[width].items():
                    found.setdefault(fold(name.rstrip(".")), number)
    return {name: number for name, number in found.items() if name[:1].isalpha()}


@cache
def weekdays(language: str) -> dict[str, int]:
    """Return the folded names of the days of the week, from Monday as 0."""
    return {
        fold(name) + ending: number
        for locale in _locales(language)
        for context in locale.days.values()
        for number, name in context["wide"].items()
        for ending in ("", "s")
    }


@cache
def units(language: str) -> dict[str, str]:
    """Return the folded names and signs of units and currencies, and which unit each means."""
    found: dict[str, str] = {}
    for locale in _locales(language):
        for unit in map(str, locale.unit_display_names):
            if unit.startswith(_FAMILIES):
                found |= dict.fromkeys(_names_of_unit(unit, locale), unit)
        for code in _CURRENCIES:
            names = (get_currency_name(code, count, locale) for count in (1, 2, 5))
            found |= dict.fromkeys((fold(name.split()[-1]) for name in names), code)
            found[code.lower()] = code
    found = {name: unit for name, unit in found.items() if len(name) > 1 or not name.isascii()}
    return found | pairs("signs", "all")


def _names_of_unit(unit: str, locale: Locale) -> Iterator[str]:
    for length in ("long", "short"):
        for count in (1, 2, 5):
            yield fold(format_unit(count, unit, length, locale=locale).strip("0123456789 \xa0."))
