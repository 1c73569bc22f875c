"""Numbers of several words: ``two hundred and seventeen``, ``quatre-vingt-dix``."""

from collections.abc import Sequence

from refine.rules.details.lexicon.number_words import MULTIPLIERS, VALUES

_MAX_PHRASE_WORDS = 3
# Words between the parts of a number.
_AND = frozenset({"and", "y", "e", "et", "και", "und", "en", "och", "i"})
# Glued to the second part in Arabic and Hebrew.
_GLUED_AND = ("و", "ו")
# French counts on from sixty and eighty to nineteen.
_LONG_TENS = (60, 80)

STARTS = frozenset(phrase.partition(" ")[0] for phrase in (*VALUES, *MULTIPLIERS))


def number_phrase(words: Sequence[str]) -> tuple[int, int] | None:
    """Return the value of the number that ``words`` begins with, and how many words it takes.

    ``words`` are folded; "" stands for what no number goes on behind. None: no number.
    """
    total, current, taken = 0, None, 0
    while True:
        at = taken + (taken > 0 and taken < len(words) and words[taken] in _AND)
        word = words[at] if at < len(words) else ""
        if (by := MULTIPLIERS.get(word)) is not None:
            if by == 100:
                current = (current or 1) * by
            else:
                total, current = total + (current or 1) * by, None
            taken = at + 1
        elif (part := _simple(words[at : at + _MAX_PHRASE_WORDS])) and _goes_on(current, part[0]):
            current, taken = (current or 0) + part[0], at + part[1]
        elif current and (value := _glued(word)) and (_goes_on(current, value) or current < 10):
            current, taken = current + value, at + 1
        else:
            break
    return (total + (current or 0), taken) if taken else None


def _simple(words: Sequence[str]) -> tuple[int, int] | None:
    for count in range(len(words), 0, -1):
        if (value := VALUES.get(" ".join(words[:count]))) is not None:
            return value, count
    return None


def _glued(word: str) -> int | None:
    """Return the value of a number behind "and": the tens follow the units in Arabic."""
    return VALUES.get(word[1:]) if word.startswith(_GLUED_AND) else None


def _goes_on(current: int | None, value: int) -> bool:
    """Tell whether ``value`` can be added to what came before: 20 and 5, 300 and 17, 60 and 12."""
    if current is None:
        return True
    if value <= 0:
        return False
    tens = current % 100
    if tens == 0:
        return value < 100
    return value < (20 if tens in _LONG_TENS else 10) and tens % 10 == 0
