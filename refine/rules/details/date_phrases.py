"""Dates with the names of months, weekdays, noon: ``March 3rd, 2026``, ``3 de mayo``."""

from refine.rules.details.dates import Moment, moment
from refine.rules.details.items import Item, date_item
from refine.rules.details.lexicon.date_words import AMBIGUOUS_MONTHS, HOURS, LINKS, MONTHS, WEEKDAYS

# A month, a day, a year, and two words between them.
_MAX_DATE_ITEMS = 5
_MAX_ABBREVIATION = 4
# Other words in other languages, or in lower case.
_ABBREVIATED_WEEKDAYS = {"mon": 1, "wed": 3, "sat": 6, "sun": 7}


def join_dates(text: str, items: list[Item], language: str) -> list[Item]:
    """Return the items of a clean text with each date as one item, weekdays included."""
    folded = {item.folded for item in items}
    if not folded.isdisjoint(MONTHS):
        items = _join_months(text, items)
    if not folded.isdisjoint(WEEKDAYS):
        items = [_with_weekday(item) for item in items]
    if not folded.isdisjoint(HOURS):
        items = [_with_hour(item) for item in items]
    if language == "en" and not folded.isdisjoint(_ABBREVIATED_WEEKDAYS):
        items = [_with_abbreviated_weekday(text, item) for item in items]
    return items


def _join_months(text: str, items: list[Item]) -> list[Item]:
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
        year, day, count = _day_and_year_behind(text, items[at : at + _MAX_DATE_ITEMS], day)
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


def _day_and_year_behind(text: str, items: list[Item], day: int) -> tuple[str, int, int]:
    """Return the year and day, and how many items the date takes from its month on.

    ``day``: the one before the month, or 0.
    """
    year, count = "", 1
    for at in range(1, len(items)):
        item, gap = items[at], text[items[at - 1].end : items[at].start]
        if gap.strip(" ,.'") or "\n" in gap:
            break
        if not day and _is_day(item) and (not gap.strip() or _is_abbreviated(items[0], gap)):
            day, count = int(item.folded), at + 1
        elif item.kind == "number" and item.folded.isdecimal() and len(item.folded) == 4:
            year, count = item.folded, at + 1
            break
        elif item.folded not in LINKS:
            break
    return year, day, count


def _is_abbreviated(month: Item, gap: str) -> bool:
    """Tell whether the full stop behind a month is that of ``Sept. 3``."""
    return gap == ". " and len(month.folded) <= _MAX_ABBREVIATION


def _is_day(item: Item) -> bool:
    return (
        item.kind == "number"
        and item.folded.isdecimal()
        and len(item.folded) <= 2
        and 1 <= int(item.folded) <= 31
    )


def _with_weekday(item: Item) -> Item:
    number = WEEKDAYS.get(item.folded) if item.kind == "word" else None
    return _weekday_item(item, number) if number is not None else item


def _with_hour(item: Item) -> Item:
    hour = HOURS.get(item.folded) if item.kind == "word" else None
    if hour is None:
        return item
    return date_item(Moment(f"time:{hour}:00", ()), item.start, item.end)


def _with_abbreviated_weekday(text: str, item: Item) -> Item:
    number = _ABBREVIATED_WEEKDAYS.get(item.folded) if item.kind == "word" else None
    if number is None:
        return item
    if text[item.start].isupper():
        # in a shorter text, whose language is not plain, it was taken for a name
        hints = (f"name:{item.folded}",)
        return date_item(Moment(f"weekday:{number}", hints), item.start, item.end)
    return item._replace(hints=(f"weekday:{number}",))


def _weekday_item(item: Item, number: int) -> Item:
    return date_item(Moment(f"weekday:{number}", ()), item.start, item.end)
