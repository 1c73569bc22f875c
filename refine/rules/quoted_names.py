"""Whether an agent's name, which everybody sees, quotes three words or a number of a memory."""

import re
import unicodedata
from collections.abc import Iterator

from refine.rules.meaning.words import UNSPACED, clean, fold

# A run of a memory that no name may hold: so many words, and characters.
_QUOTED_WORDS = 3
_QUOTED_CHARACTERS = 6
# How many characters of a script without spaces count as a word: of Han, and of others.
_HAN_IN_A_WORD, _OTHERS_IN_A_WORD = 2, 4
# A number, or a word with letters and digits, that is no name if a memory has it.
_NUMBER_DIGITS = 4
_CODE_CHARACTERS = 6

_WORD = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")
_HAN = re.compile("[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_UNSPACED = re.compile(f"[{UNSPACED}]")
# Cyrillic and Greek letters, in lower case, that look like Latin ones; and l, which looks like I.
_LOOK_ALIKES = str.maketrans(
    "авекмнорстухіјѕԁԛԝһαβεηικνορτυχγl", "abekmhopctyxijsdqwhabenikvoptuxyi"
)


def quotes(name: str, memory: str) -> bool:
    """Tell whether ``name`` holds a run of words, a number or a password of ``memory``."""
    said = "".join(_words(name))
    return any(run in said for run in _runs(_words(memory)))


def _runs(words: list[str]) -> Iterator[str]:
    """Yield the runs of words that no name may hold: from each word on, the shortest."""
    for first, word in enumerate(words):
        if _is_number_or_code(word):
            yield word
        run, weight = "", 0.0
        for each in words[first:]:
            run, weight = run + each, weight + _weight(each)
            if weight >= _QUOTED_WORDS and len(run) >= _QUOTED_CHARACTERS:
                yield run
                break
        else:
            if first == 0 and len(run) >= _QUOTED_CHARACTERS:  # all of a short memory
                yield run


def _weight(word: str) -> float:
    if _HAN.match(word):
        return 1 / _HAN_IN_A_WORD
    return 1 / _OTHERS_IN_A_WORD if _UNSPACED.match(word) else 1


def _is_number_or_code(word: str) -> bool:
    if word.isdigit():
        return len(word) >= _NUMBER_DIGITS
    has_digit = any(character.isdigit() for character in word)
    return has_digit and len(word) >= _CODE_CHARACTERS


def _words(text: str) -> list[str]:
    return [plain for word in _WORD.findall(clean(text)) if (plain := _plain(word))]


def _plain(word: str) -> str:
    letters = unicodedata.normalize("NFD", fold(word).translate(_LOOK_ALIKES))
    return "".join(each for each in letters if not unicodedata.combining(each))
