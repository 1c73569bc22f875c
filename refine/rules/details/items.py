"""The parts of a text with what they mean: words, numbers, times and dates."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from refine.rules.details import dates, numbers
from refine.rules.details.dates import Moment
from refine.rules.details.folding import fold
from refine.rules.details.lexicon.date_words import ORDINAL_ENDINGS
from refine.rules.details.tokens import Token, longest_part, tokens_of

# As many characters as 午後 has, and a blank.
_MAX_DAY_PART = 3


class Item(NamedTuple):
    """A part of a clean text: its folded form, where it stands, and what it means.

    ``kind`` is ``word``, ``unspaced`` (a run of a script without spaces), ``number`` or ``date``
    (times, too). ``key`` is that of a detail, or ""; ``hints`` are what else it mentions.
    """

    kind: str
    folded: str
    start: int
    end: int
    key: str = ""
    hints: tuple[str, ...] = ()


def items_of(text: str) -> list[Item]:
    """Return the items of a clean text, each number and numeric date as one."""
    items: list[Item] = []
    for token in tokens_of(text):
        item = _item(text, token)
        if items and item.folded in ORDINAL_ENDINGS and _is_ordinal(items[-1], item):
            items[-1] = items[-1]._replace(end=item.end)
        else:
            items.append(item)
    return items


def number_item(number: str, start: int, end: int, *hints: str) -> Item:
    """Return the item of a canonical number."""
    return Item("number", number, start, end, f"number:{number}", hints)


def date_item(moment: Moment, start: int, end: int) -> Item:
    """Return the item of a date or time."""
    return Item("date", first_value(moment.key), start, end, moment.key, moment.hints)


def first_value(key: str) -> str:
    """Return what a key is about: ``17`` for ``number:17``, 3/4/2026 for all its readings."""
    return key.partition(":")[2].partition("|")[0]


def flat(text: str) -> str:
    """Return the words of a clean text in a row: folded, and without punctuation."""
    return " ".join(item.folded for item in items_of(text))


def _is_ordinal(number: Item, ending: Item) -> bool:
    return number.kind == "number" and number.end == ending.start


def _item(text: str, token: Token) -> Item:
    if token.kind == "word":
        return Item("word", fold(longest_part(token.text)), token.start, token.end)
    if token.kind == "unspaced":
        return Item("unspaced", fold(token.text), token.start, token.end)
    if token.kind == "eastern_time":
        before = text[max(0, token.start - _MAX_DAY_PART) : token.start]
        return date_item(dates.eastern_time(token.text, before), token.start, token.end)
    if token.kind in _MOMENTS:
        moment = _MOMENTS[token.kind](token.text)
        if moment is not None:
            return date_item(moment, token.start, token.end)
    if token.kind == "phone":
        return number_item(numbers.phone_digits(token.text), token.start, token.end)
    number = numbers.canonical(token.text)
    readings = dates.short_dates(number, text[token.end : token.end + 1])
    # 3/4 is carried by either of its dates, but does not carry 4/3
    hints = readings if len(readings) == 1 else ()
    item = number_item(number, token.start, token.end, *hints)
    return item._replace(key="|".join((item.key, *readings)))


_MOMENTS: Mapping[str, Callable[[str], Moment | None]] = {
    "date": dates.numeric_date,
    "eastern_date": dates.eastern_date,
    "time": dates.clock_time,
}
