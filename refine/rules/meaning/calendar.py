"""Dates, times and units, whatever way they are written."""

import re
from collections.abc import Iterator
from functools import cache

from babel import Locale
from babel.numbers import get_currency_name
from babel.units import format_unit

from refine.rules.folding import fold
from refine.rules.meaning.words import pairs

# Ordinary words as well: months only with a day, a year or, in English, a capital.
_ALSO_WORDS = frozenset({"may", "march", "mar", "sep", "dec", "mai", "mars", "jan"})
_DAY = r"(\d{1,2})(?:st|nd|rd|th|er|\.|º|ª)?(?!\d)"
_OF = r"(?:(?:of|de|del|di|do|d['’])\s*)?"
_LATEST_SHORT_YEAR = 69

_CURRENCIES = ("EUR", "USD", "GBP", "CHF", "JPY", "INR", "CNY", "RUB", "PLN", "CZK", "SEK", "TRY")
_FAMILIES = ("duration", "length", "mass", "volume", "temperature", "digital", "area", "power")


def date_keys(key: str) -> tuple[str, ...]:
    """Return the parts of a date: its year, month (--03) and day of any year (--03-03)."""
    year, month, day = key.rsplit("-", 2) if len(key) == 10 else (*key.rsplit("-", 1), "")
    if key.startswith("--"):
        year, month, day = "", key[2:4], key[5:]
    dated = (f"--{month}-{day}" if day else "", year, f"{year}-{month}" if year else "")
    return tuple(each for each in (f"--{month}", *dated, key if year else "") if each)


def numeric_date(written: str, language: str) -> tuple[str, ...]:
    """Return the dates that 2026-03-03, 3.3.2026 or 3/4/2026 may mean; none if it is no date.

    Only in English 3/4/2026 may be in March.
    """
    fields = re.findall(r"\d+", written)
    is_iso = len(fields[0]) == 4
    day, month, year = reversed(fields) if is_iso else fields
    if len(year) == 2:
        year = f"{20 if int(year) <= _LATEST_SHORT_YEAR else 19}{year}"
    is_either = language == "en" and "." not in written and not is_iso
    orders = {(month, day): None, **({(day, month): None} if is_either else {})}
    return tuple(
        f"{year}-{int(month):02}-{int(day):02}"
        for month, day in orders
        if 1 <= int(month) <= 12 and 1 <= int(day) <= 31
    )


@cache
def _locales(language: str) -> list[Locale]:
    return [Locale.parse(name) for name in dict.fromkeys((language, "en", "en_GB"))]


@cache
def _months(language: str) -> dict[str, int]:
    found: dict[str, int] = {"sept": 9}
    for locale in _locales(language):
        for context in locale.months.values():
            for width in ("wide", "abbreviated"):
                for number, name in (context.get(width) or {}).items():
                    found.setdefault(fold(name.rstrip(".")), number)
    return {name: number for name, number in found.items() if name[:1].isalpha() and len(name) > 2}


@cache
def weekdays(language: str) -> dict[str, int]:
    """Return the folded names of the days of the week, from Monday as 0."""
    return {
        fold(name) + ending: number
        for locale in _locales(language)
        for context in locale.days.values()
        for number, name in context["wide"].items()
        for ending in ("", "s")
    }


@cache
def _written_date(language: str) -> re.Pattern[str]:
    names = "|".join(sorted(map(re.escape, _months(language)), key=len, reverse=True))
    month, year = rf"\b({names})\b\.?", rf"(?:,?\s+{_OF}(\d{{4}})\b)?"
    return re.compile(
        rf"\b{_DAY}\s*{_OF}{month}{year}|{month}\s+(?:the\s+)?{_DAY}{year}|{month}{year}",
        re.IGNORECASE,
    )


def with_plain_dates(text: str, language: str) -> str:
    """Return a text with the dates that name their month as 2026-03-03, --03-03 or 2026-03."""
    months = _months(language)
    if months.keys().isdisjoint(map(fold, re.findall(r"[^\W\d_]+", text))):
        return text

    def plain(found: re.Match[str]) -> str:
        day, year = found[1] or found[5], found[3] or found[6] or found[8]
        name = found[2] or found[4] or found[7]
        is_day = day is not None and 1 <= int(day) <= 31
        is_word = fold(name) in _ALSO_WORDS and (language != "en" or not name[0].isupper())
        if not is_day and (day or (is_word and not year)):
            return found[0]
        date = f"{year or '-'}-{months[fold(name)]:02}"
        return f" {date}-{int(day):02} " if is_day else f" {date} "

    return _written_date(language).sub(plain, text)


@cache
def units(language: str) -> dict[str, str]:
    """Return the folded names and signs of units and currencies, and which unit each means."""
    found: dict[str, str] = {}
    for locale in _locales(language):
        for unit in map(str, locale.unit_display_names):
            if unit.startswith(_FAMILIES):
                found |= dict.fromkeys(_names_of_unit(unit, locale), unit)
        for code in _CURRENCIES:
            names = (get_currency_name(code, count, locale) for count in (1, 2, 5))
            found |= dict.fromkeys((fold(name.split()[-1]) for name in names), code)
            found[code.lower()] = code
    found = {name: unit for name, unit in found.items() if len(name) > 1 or not name.isascii()}
    return found | pairs("signs", "all")


def _names_of_unit(unit: str, locale: Locale) -> Iterator[str]:
    for length in ("long", "short"):
        for count in (1, 2, 5):
            name = format_unit(count, unit, length, locale=locale).strip("0123456789 \xa0.")
            if name and " " not in name:
                yield fold(name)
