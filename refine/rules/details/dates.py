"""Dates and times, whatever way they are written, as keys that can be compared.

A key is ``date:2026-03-03``, ``date:2026-03``, ``date:03-03``, ``month:3``, ``weekday:1`` or
``time:15:30``. Where a writing fits two dates (3/4/2026), its key names both, split by ``|``; so
does that of a time that may be one of the afternoon, with the hour on the dial: ``clock:3:30``.
"""

import re
from typing import NamedTuple

from refine.rules.details.numbers import ascii_digits

_FIELDS = re.compile(r"\d+")
_LATEST_SHORT_YEAR = 69
_SHORT_DATE = re.compile(r"(\d{1,2})(?:/(\d{1,2})|\.(\d{1,2})\.)")
_TIME = re.compile(r"(\d{1,2})(?:[:h.](\d{2}))?(?::(\d{2}))?\s?([ap]?)")
_EASTERN_TIME = re.compile(r"(\d{1,2})\D*(\d{1,2})?")
_DAY_PARTS = {
    "a": ("午前", "上午", "早上", "凌晨", "清晨", "오전", "새벽", "아침"),
    "p": ("午後", "下午", "晚上", "오후"),
}


class Moment(NamedTuple):
    """What a date or time is compared by: its key, and other keys that it also mentions."""

    key: str
    hints: tuple[str, ...]


def moment(year: str, month: int, day: int) -> Moment:
    """Return a date; its year (``""``) or day (0) may be missing."""
    hints = [f"month:{month}"]
    if year:
        hints += [f"number:{year}", f"date:{year}-{month:02}"]
    if day:
        hints.append(f"date:{month:02}-{day:02}")
    if year and day:
        hints.append(f"date:{year}-{month:02}-{day:02}")
    return Moment(hints[-1], tuple(hints))


def numeric_date(written: str) -> Moment | None:
    """Read 2026-03-03, 3.3.2026 or 3/4/2026; None if it is no date, such as 2.50.12."""
    fields = [ascii_digits(field) for field in _FIELDS.findall(written)]
    if len(fields[0]) == 4:
        year, month, day = fields[0], int(fields[1]), int(fields[2])
        return moment(year, month, day) if _fits(month, day) else None
    first, second, year = int(fields[0]), int(fields[1]), _long_year(fields[2])
    day_first, month_first = _fits(second, first), _fits(first, second)
    if "." in written or first == second or not month_first:
        return moment(year, second, first) if day_first else None
    if not day_first:
        return moment(year, first, second)
    return _either(year, first, second)


def short_dates(number: str, after: str) -> tuple[str, ...]:
    """Return the keys of the dates that ``3/4`` may mean, or ``24.12.`` with its full stop.

    ``after``: the character behind the number.
    """
    found = _SHORT_DATE.fullmatch(number + after) or _SHORT_DATE.fullmatch(number)
    if found is None:
        return ()
    first, second = int(found[1]), int(found[2] or found[3])
    dates = {(second, first)} if found[3] else {(second, first), (first, second)}
    return tuple(moment("", month, day).key for month, day in sorted(dates) if _fits(month, day))


def eastern_date(written: str) -> Moment | None:
    """Read 2026年3月3日, 3月3日 or 3월; None if it is no date."""
    fields = [ascii_digits(field) for field in _FIELDS.findall(written)]
    year = fields.pop(0) if len(fields[0]) == 4 else ""
    month, day = int(fields[0]), int(fields[1]) if len(fields) > 1 else 0
    return moment(year, month, day) if _fits(month, day or 1) else None


def clock_time(written: str) -> Moment:
    """Read 15:30, 3:30 pm, 3 p.m., 15h30, 15 Uhr or 3 o'clock."""
    found = _TIME.match(ascii_digits(written.lower()))
    assert found is not None  # noqa: S101 - the token's pattern is narrower
    return _time(int(found[1]), found[2], found[3], found[4])


def eastern_time(written: str, before: str) -> Moment:
    """Read 15時30分, 3点 or 3시; ``before``: the text before it, such as 下午 (afternoon)."""
    found = _EASTERN_TIME.match(ascii_digits(written))
    assert found is not None  # noqa: S101 - the token's pattern is narrower
    minute = "30" if written.endswith(("半", "반")) else found[2] and f"{int(found[2]):02}"
    behind = before.rstrip()
    part = next((part for part, words in _DAY_PARTS.items() if behind.endswith(words)), "")
    found_time = _time(int(found[1]), minute, None, part)
    # 点 also counts points, and the hour alone may be a word: 三点, 세 시.
    return found_time._replace(hints=(*found_time.hints, f"number:{int(found[1])}"))


def _time(hour: int, minute: str | None, second: str | None, part: str) -> Moment:
    rest = ":".join(filter(None, (minute or "00", second)))
    number = [f"number:{hour}"] if rest == "00" else []
    on_dial = f"clock:{hour}:{rest}"
    if part:
        key = f"time:{hour % 12 + 12 * (part == 'p')}:{rest}"
        return Moment(key, (key, on_dial, *number))
    key = f"time:{hour}:{rest}"
    # "6:30" may be "6:30 pm", and "6 Uhr" is also "sechs Uhr"
    readings = [key, *([on_dial] if hour <= 12 else []), *([] if minute else number)]
    return Moment("|".join(readings), (key, *number))


def _either(year: str, first: int, second: int) -> Moment:
    """Return an ambiguous date: carried as it is written, or by either of its readings."""
    written = f"date:{first}/{second}/{year}"
    readings = (moment(year, second, first).key, moment(year, first, second).key)
    return Moment("|".join((written, *readings)), (written, f"number:{year}"))


def _fits(month: int, day: int) -> bool:
    return 1 <= month <= 12 and 1 <= day <= 31


def _long_year(year: str) -> str:
    if len(year) == 4:
        return year
    return f"{'20' if int(year) <= _LATEST_SHORT_YEAR else '19'}{year}"
