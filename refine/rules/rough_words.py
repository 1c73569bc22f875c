"""Cuts any text into rough words: good enough to compare texts, and fast."""

import unicodedata

# Names of characters of scripts that put no spaces between words begin with these.
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
# One in this many of their characters ends a word, the same ones in every text.
_ENDS_WORD = 3
_END = "\n"
_SPREADING = 2_654_435_761  # Knuth's multiplicative hash: neighbours in Unicode end up apart


class _Folding(dict[int, str]):
    """What each character becomes, worked out once; for ``str.translate``."""

    def __missing__(self, code_point: int) -> str:
        self[code_point] = folded = _folded(chr(code_point))
        return folded


def _folded(character: str) -> str:
    if unicodedata.category(character)[0] not in "LMN":
        return " "
    folded = unicodedata.normalize("NFKC", character).casefold()
    is_unspaced = unicodedata.name(character, "").startswith(_UNSPACED)
    is_end = is_unspaced and (ord(character) * _SPREADING >> 7) % _ENDS_WORD == 0
    return folded + _END if is_end else folded


_FOLDING = _Folding()


def rough_words(text: str) -> list[str]:
    """Return the words of a text, regardless of case and punctuation.

    Letters, marks and digits make a word. Text without spaces is cut after certain characters, so
    that the same run of characters makes the same words anywhere. A text without any letter or
    digit is cut at its blanks.
    """
    words = unicodedata.normalize("NFC", text).translate(_FOLDING).split()
    return words or text.split()
