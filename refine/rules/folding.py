"""Writings of one character or word that count as the same."""

import re
import unicodedata
from functools import lru_cache

# Han, kana, Hangul, Thai, Lao, Khmer, Burmese: no spaces, or particles joined to words.
UNSPACED = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uac00-\ud7af\U00020000-\U0003ffff\u0e00-\u0eff\u1000-\u109f\u1780-\u17d2"
)
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
