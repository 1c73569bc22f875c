"""Days and times as people and other programs write them."""

import re
from contextlib import suppress
from datetime import datetime

from refine import clock
from refine.errors import InvalidValue
from refine.rules.instants import instant

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH, _NTH = rf"({'|'.join(_MONTHS)})[a-z]*\.?", r"(\d\d?)(?:st|nd|rd|th)?\.?"
# 2025-04-01 or 2025/4/1; 1 April 2025; Apr 1st, 2025; 1.4.2025.
DAY = re.compile(
    r"(?i)(?<!\d)(?:(\d{4})([-/._])(\d\d?)\2(\d\d?)"
    rf"|{_NTH} {_MONTH},? (\d{{4}})|{_MONTH} {_NTH},? (\d{{4}})"
    r"|(\d\d?)\.(\d\d?)\.(\d{4}))(?!\d)"
)
_WEEKDAY = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?"
_AROUND = re.compile(rf"(?i)[\s:,()\[\]–—-]*(?:\b{_WEEKDAY}\b)?[\s:,()\[\]–—-]*")
# What an ISO time does not have.
_ZONE = re.compile(r"(?i)\s*(?:utc|gmt)$|\s+(?=[+-]\d)")


def time_of(written: object, field: str = "") -> datetime | None:
    """Return the time as ``instant`` does, also of what people write; or InvalidValue."""
    try:
        return instant(written, now=clock.now(), field=field)
    except InvalidValue:
        text = str(written).strip()
        found = DAY.search(text)
        if found is None or not _AROUND.fullmatch(text[: found.start()]):
            raise
        with suppress(InvalidValue):
            return instant(_day(found) + _ZONE.sub("", text[found.end() :]), now=clock.now())
        return instant(_day(found), now=clock.now(), field=field)


def day_in(text: str) -> datetime | None:
    """Return the first day that a text names, if it is one on which something can be kept."""
    found = DAY.search(text)
    with suppress(InvalidValue):
        return instant(_day(found), now=clock.now()) if found else None
    return None


def without_day(text: str) -> str:
    """Return a text without the first day that it names, its weekday, and what sets it off."""
    if (found := DAY.search(text)) is None:
        return text
    parts = (text[: found.start()], text[found.end() :])
    before, after = ("" if _AROUND.fullmatch(each) else each for each in parts)
    return f"{before.rstrip(' :,([–—-_')} {after.lstrip(' :,)]–—-_')}".strip()


def _day(found: re.Match[str]) -> str:
    day, month, year = (each for each in found.groups() if each and each not in "-/._")
    if len(day) == 4:
        day, year = year, day
    elif day.isalpha():
        day, month = month, day
    number = _MONTHS.index(month.lower()) + 1 if month.isalpha() else int(month)
    return f"{year}-{number:02}-{int(day):02}"
