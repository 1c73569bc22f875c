"""Numbers of several words: ``two hundred and seventeen``, ``5 million``, ``minus five``."""

from collections.abc import Sequence

from refine.rules.details import numbers
from refine.rules.details.eastern_numbers import great_power
from refine.rules.details.items import Item, number_item
from refine.rules.details.lexicon.number_words import AMBIGUOUS, MULTIPLIERS, VALUES

_MAX_PHRASE_ITEMS = 10
_MAX_PHRASE_WORDS = 3
_MINUS = frozenset(["minus", "moins", "meno", "menos", "минус", "eksi", "miinus", "μειον"])
# Words between the parts of a number.
_AND = frozenset({"and", "y", "e", "et", "και", "und", "en", "och", "i"})
# Glued to the second part in Arabic and Hebrew.
_GLUED_AND = ("و", "ו")
# French counts on from sixty and eighty to nineteen.
_LONG_TENS = (60, 80)

_STARTS = frozenset(phrase.partition(" ")[0] for phrase in (*VALUES, *MULTIPLIERS))


def join_numbers(text: str, items: list[Item], language: str) -> list[Item]:
    """Return the items of a clean text with each number of several words as one item."""
    if not _STARTS.isdisjoint([item.folded for item in items]):
        items = _join_number_words(text, items, language)
    if any(item.kind == "number" for item in items):
        items = _join_scaled_numbers(text, items, language)
    return items


def _join_number_words(text: str, items: list[Item], language: str) -> list[Item]:
    joined: list[Item] = []
    at = 0
    while at < len(items):
        words = _words_from(text, items, at) if _begins_number(joined, items[at]) else []
        found = _number_phrase(words if _is_number_in(language, words) else words[:1])
        if found is None:
            joined.append(items[at])
            at += 1
            continue
        value, count = found
        first, last = items[at], items[at + count - 1]
        if count == 1 and (value == 1 or not _is_number_in(language, words)):
            joined.append(first._replace(hints=(f"number:{value}",)))
        else:
            joined.append(number_item(str(value), first.start, last.end))
        at += count
    return joined


def _begins_number(before: list[Item], item: Item) -> bool:
    """Tell whether an item may begin a number; ``thousand`` behind digits only multiplies them."""
    follows_digits = bool(before) and before[-1].kind == "number"
    return item.folded in _STARTS and not (follows_digits and item.folded in MULTIPLIERS)


def _is_number_in(language: str, words: list[str]) -> bool:
    """Tell whether the first of ``words`` is no ordinary word in this language."""
    return bool(words) and language in AMBIGUOUS.get(words[0], (language,))


def _words_from(text: str, items: list[Item], at: int) -> list[str]:
    """Return the folded words from ``at`` on that stand in a row, split by blanks or hyphens."""
    words: list[str] = []
    for item, before in zip(items[at : at + _MAX_PHRASE_ITEMS], [None, *items[at:]], strict=False):
        if item.kind != "word":
            break
        if before is not None and text[before.end : item.start] not in (" ", "-"):
            break
        words.append(item.folded)
    return words


def _join_scaled_numbers(text: str, items: list[Item], language: str) -> list[Item]:
    joined: list[Item] = []
    for item in items:
        before = joined[-1] if joined else None
        if before is not None and before.kind == "number":
            if (by := _scale(text[before.end : item.start], item, language)) is not None:
                number = numbers.multiplied(before.folded, by)
                end = item.end if item.kind == "word" else item.start + 1
                joined[-1] = number_item(number, before.start, end, before.key)
                if item.kind == "word":
                    continue
                item = item._replace(folded=item.folded[1:], start=end)
        elif before is not None and item.kind == "number" and before.folded in _MINUS:
            joined[-1] = number_item(f"-{item.folded.lstrip('-')}", before.start, item.end)
            continue
        joined.append(item)
    return joined


def _scale(gap: str, item: Item, language: str) -> int | None:
    if item.kind == "unspaced" and not gap:
        return great_power(item.folded)
    if item.kind == "word" and item.folded == "k" and not gap:
        return 1_000
    if gap not in ("", " ") or not _is_number_in(language, [item.folded]):
        return None
    return MULTIPLIERS.get(item.folded)


def _number_phrase(words: Sequence[str]) -> tuple[int, int] | None:
    """Return the value of the number that ``words`` begins with, and how many words it takes.

    ``words`` are folded. None: no number.
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
