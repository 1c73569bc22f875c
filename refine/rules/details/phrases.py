"""Numbers and dates of several items: ``two hundred``, ``5 million``, ``March 3rd, 2026``."""

from refine.rules.details import numbers
from refine.rules.details.dates import Moment, moment
from refine.rules.details.eastern_numbers import great_power
from refine.rules.details.items import Item, date_item, number_item
from refine.rules.details.lexicon.date_words import AMBIGUOUS_MONTHS, LINKS, MONTHS, WEEKDAYS
from refine.rules.details.lexicon.number_words import AMBIGUOUS, MULTIPLIERS
from refine.rules.details.number_phrases import STARTS, number_phrase

_MAX_PHRASE_ITEMS = 10
_MINUS = frozenset(["minus", "moins", "meno", "menos", "минус", "eksi", "miinus", "μειον"])


def join_phrases(text: str, items: list[Item], language: str) -> list[Item]:
    """Return the items of a clean text with phrases of numbers and dates as one item each."""
    folded = {item.folded for item in items}
    if not STARTS.isdisjoint(folded):
        items = _join_number_words(text, items, language)
    if any(item.kind == "number" for item in items):
        items = _join_scaled_numbers(text, items, language)
    if not folded.isdisjoint(MONTHS):
        items = _join_dates(text, items)
    if not folded.isdisjoint(WEEKDAYS):
        items = [_with_weekday(item) for item in items]
    return items


def _join_number_words(text: str, items: list[Item], language: str) -> list[Item]:
    joined: list[Item] = []
    at = 0
    while at < len(items):
        words = _words_from(text, items, at) if _begins_number(joined, items[at]) else []
        found = number_phrase(words if _is_number_in(language, words) else words[:1])
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
    return item.folded in STARTS and not (follows_digits and item.folded in MULTIPLIERS)


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


def _join_dates(text: str, items: list[Item]) -> list[Item]:
    joined: list[Item] = []
    at = 0
    while at < len(items):
        item = items[at]
        month = MONTHS.get(item.folded) if item.kind == "word" else None
        if month is None:
            joined.append(item)
            at += 1
            continue
        start = _day_before(text, joined, item)
        day = int(joined[start].folded) if start < len(joined) else 0
        year, day, count = _after(text, items[at : at + 5], day)
        found = moment(year, month, day)
        first = joined[start] if start < len(joined) else item
        if year or day or item.folded not in AMBIGUOUS_MONTHS:
            del joined[start:]
            joined.append(date_item(found, first.start, items[at + count - 1].end))
        else:
            joined.append(item._replace(hints=found.hints))
        at += count
    return joined


def _day_before(text: str, items: list[Item], month: Item) -> int:
    """Return where the day begins that stands before a month; the end of the items if none."""
    at, end = len(items) - 1, month.start
    while at >= 0 and items[at].folded in LINKS and text[items[at].end : end].isspace():
        at, end = at - 1, items[at].start
    if at >= 0 and _is_day(items[at]) and text[items[at].end : end].strip(" .-") == "":
        return at
    return len(items)


def _after(text: str, items: list[Item], day: int) -> tuple[str, int, int]:
    """Return the year and day, and how many items the date takes from its month on."""
    year, count = "", 1
    for at in range(1, len(items)):
        item, gap = items[at], text[items[at - 1].end : items[at].start]
        if gap.strip(" ,.'") or "\n" in gap:
            break
        if not day and _is_day(item) and not gap.strip():
            day, count = int(item.folded), at + 1
        elif item.kind == "number" and item.folded.isdecimal() and len(item.folded) == 4:
            year, count = item.folded, at + 1
            break
        elif item.folded not in LINKS:
            break
    return year, day, count


def _is_day(item: Item) -> bool:
    return (
        item.kind == "number"
        and item.folded.isdecimal()
        and len(item.folded) <= 2
        and 1 <= int(item.folded) <= 31
    )


def _with_weekday(item: Item) -> Item:
    number = WEEKDAYS.get(item.folded) if item.kind == "word" else None
    if number is None:
        return item
    found = Moment(f"weekday:{number}", ())
    return date_item(found, item.start, item.end)
