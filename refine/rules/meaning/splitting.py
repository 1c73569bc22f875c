"""How a text is split: into words, numbers, dates, times, addresses and runs without spaces."""

import re
import unicodedata
from functools import cache
from typing import NamedTuple

from text_to_num import alpha2digit

from refine.rules.meaning.words import (
    UNSPACED,
    fold,
    is_small,
    listed,
    months,
    one_of,
    pairs,
    roles,
)

# Vowel signs and accents that Python does not count as parts of words.
_MARKS = "".join(
    chr(code)
    for code in (*range(0x300, 0x370), *range(0x483, 0x488), *range(0x900, 0xE00))
    if unicodedata.category(chr(code)).startswith("M")
)
_LETTER = rf"[^\W_{UNSPACED}]"
_WORD = rf"{_LETTER}+(?:[{_MARKS}]+{_LETTER}*|_+{_LETTER}+)*"
_BODY = rf"[^\s<>|\"“”„«»「」『』《》、。،؛؟{UNSPACED}]"
_ADDRESS = rf"""
    (?P<address>(?<![a-zA-Z0-9])[a-z][a-z0-9+.-]{{1,15}}://{_BODY}+ | (?<!\w)www\.{_BODY}+
      | (?<!{_LETTER})[\w.+-]{{1,64}}@[\w-]+(?:\.[\w-]+)+ | (?<![\w@])@\w[\w.-]*\w
      | (?<![\w\#])\#(?=[^\W\d_])[\w-]+
      | (?<![\w./~\\])(?:[a-zA-Z]:[\\/]|~/|\.{{1,2}}/|/(?=[\w.]{{2}}))[\w.@%+~\\/-]+
      | (?<![\w./@-])(?=[\w-]*[a-z])(?:[a-z0-9][\w-]*\.){{1,8}}[a-z]{{2,24}}(?![\w])(?:/{_BODY}*)?
      | (?<![\w./@-])(?=[\w/-]*[a-zA-Z])(?:[\w-]+/){{2,}}[\w-]+(?:\.\w+)?)"""
_FIGURES = rf"""
    (?=[\d+(.\-−])(?:
      (?P<date>(?<![\w-])(?:\d{{4}}-\d\d?-\d\d?|\d{{4}}-(?:0[1-9]|1[0-2])|--\d\d(?:-\d\d)?
        | \d{{1,2}}(?P<by>[./-])\d{{1,2}}(?P=by)(?:\d{{4}}|\d\d))(?![\w/-]|[.,]\d))
    | (?P<time>(?<![\w.])(?P<hour>[01]?\d|2[0-4])(?:
          [:h](?P<minute>[0-5]\d)(?::[0-5]\d)?(?:\s?(?P<half>[aApP])\.?[mM]\b)?
        | \s?(?P<half_day>[aApP])\.?[mM]\b | \s(?i:uhr|o['’]clock)\b)(?![\w:]|\.\d))
    | (?P<phone>(?<![\w.])(?:\+|00|\(?0)\d[\d\ ()./-]{{5,18}}\d(?!\w)
        | (?<![\w.])\d{{3,5}}[-\ ]\d{{3,4}}[-\ ]\d{{3,4}}(?![\w.]))
    | (?P<number>(?:(?<![\w)\]])[-−](?=\.?\d))?(?<![^\W{UNSPACED}])
        (?:\d{{1,3}}(?:\ \d{{3}}(?!\d))+(?:[.,]\d+)?|\d+(?:[.,'’٫٬/]\d+)*|(?<!\w)\.\d+)
        (?:(?:st|nd|rd|th)\b)?))"""
_WORDS = rf"""
    (?P<word>{_WORD}(?:['’ʼ`"״](?={_LETTER}){_WORD})*) | (?P<unspaced>[{UNSPACED}]+)"""
_TOKEN = re.compile(f"{_ADDRESS}|{_FIGURES}|{_WORDS}", re.VERBOSE)
_DECORATION = re.compile(r"^(?:[a-z][a-z0-9+.-]*://|mailto:)?(?:www\.)?", re.IGNORECASE)
_TRAILING = ".,;:!?…'’)]}>*_/\\-"
_THOUSANDS = re.compile(r"([1-9]\d{0,2}([ .,'])\d{3}(?:\2\d{3})*)(?:(?!\2)[.,](\d+))?")
_WRITINGS = str.maketrans("٬٫’−", ",.'-")
_APOSTROPHES = re.compile("['’ʼ`]")
# Not a word by itself, before or behind an apostrophe.
_CONTRACTIONS = frozenset({"ve", "ll", "re", "d", "m", "t", "s", "l", "n", "o", "c", "j", "qu"})

_EASTERN = re.compile("[零〇一二三四五六七八九十百千万萬億两兩]+")
_EASTERN_DATE = re.compile(
    r"(?:(\d{4})\s?[年년]\s?)?(?<!\d)(\d{1,2})\s?[月월](?:\s?(\d{1,2})\s?[日号號일])?"
)
# The languages whose number words the library reads.
_SPELLED_OUT = frozenset({"en", "fr", "es", "pt", "de", "nl", "it", "da"})
# From here on a number word counts as a number; "one" is too often a pronoun.
_LEAST_NUMBER = 2

# Ordinary words as well: months only with a day, a year or, in English, a capital.
_ALSO_WORDS = frozenset({"may", "march", "mar", "sep", "dec", "mai", "mars", "jan"})
_DAY = r"(\d{1,2})(?:st|nd|rd|th|er|\.|º|ª)?(?!\d)"
_OF = r"(?:(?:of|de|del|di|do|d['’])\s*)?"
_LATEST_SHORT_YEAR = 69

_LABEL = re.compile(r"(?:^|(?<=[.!?;]\s))([^\W\d_]+)(?: ([^\W\d_]+))? ?:")
_WORD_OR_MARK = re.compile(r"[^\W\d_]+|[^\w\s'’\-]")
# What such words change is no part of a clause to leave out.
_OPENING = frozenset({"saying", "asking"})
_CHANGING = frozenset({"negations", "contrasts", "conditions"})


class Token(NamedTuple):
    """A piece of a text; ``keys``: for comparison, ``says``: what else it mentions."""

    kind: str
    written: str
    start: int
    end: int
    keys: tuple[str, ...]
    says: tuple[str, ...] = ()


def tokens_of(text: str, language: str) -> tuple[str, list[Token]]:
    """Return a clean text with plain numbers and dates, and its tokens."""
    text = with_plain_dates(_with_plain_numbers(text, language), language)
    return text, [_token(match, language) for match in _TOKEN.finditer(text)]


def _with_plain_numbers(text: str, language: str) -> str:
    if words := pairs("numbers", language):
        text = _without_number_words(text, words)
    if language in _SPELLED_OUT:
        text = alpha2digit(text, language, _LEAST_NUMBER)
    if text.isascii():
        return text
    text = "".join(str(int(each)) if each.isdecimal() else each for each in text)
    text = _EASTERN.sub(lambda run: _eastern_number(run[0]), text)
    return _EASTERN_DATE.sub(_eastern_date, text)


def _without_number_words(text: str, words: dict[str, str]) -> str:
    """Return a text with the number words of its language as digits: двадцать пять as 25."""

    def plain(found: re.Match[str]) -> str:
        value = words.get(fold(found[0].replace("’", "'")), "0")
        return value if int(value) >= _LEAST_NUMBER else found[0]

    text = re.sub(r"[^\W\d_]+(?:['’][^\W\d_]+)?", plain, text)
    return re.sub(r"\b([2-9])0[ -]([1-9])\b", r"\1\2", text)


def _eastern_number(run: str) -> str:
    """Return 25 for 二十五 and 2026 for 二〇二六; a single 一 is too often no number."""
    values = [int(unicodedata.numeric(each, 2)) for each in run.replace("〇", "零")]
    if len(run) == 1 and values[0] < _LEAST_NUMBER:
        return run
    if all(value < 10 for value in values):
        return "".join(map(str, values))
    total = part = digit = 0
    for value in values:
        if value < 10:
            digit = value
        elif value < 10_000:
            part, digit = part + (digit or 1) * value, 0
        else:
            total, part, digit = total + (part + digit or 1) * value, 0, 0
    return str(total + part + digit)


def _eastern_date(found: re.Match[str]) -> str:
    date = f"{found[1] or '-'}-{int(found[2]):02}"
    return f" {date}-{int(found[3]):02} " if found[3] else f" {date} "


def _token(match: re.Match[str], language: str) -> Token:
    keys, says = _meant(match, language)
    written, (start, end) = match[0].rstrip(_TRAILING), match.span()
    return Token(str(match.lastgroup), written, start, end, keys, says)


def _meant(match: re.Match[str], language: str) -> tuple[tuple[str, ...], ...]:
    kind, written = match.lastgroup, match[0]
    if kind in ("word", "unspaced"):
        return (fold(_longest_part(written)),), ()
    if kind == "address":
        address = fold(_DECORATION.sub("", written).rstrip(_TRAILING).replace("\\", "/"))
        return (f"@{address}",), (f"@{address.partition('/')[0]}", f"@{address.split('/')[-1]}")
    if kind == "phone":
        return (f"#{re.sub('[^0-9]', '', written).removeprefix('00')}",), ()
    if kind == "time":
        half = (match["half"] or match["half_day"] or "").lower()
        hour = int(match["hour"]) % 12 + 12 * (half == "p") if half else int(match["hour"])
        is_full = not half and match["minute"] in (None, "00")
        hours = (f"#{hour}",) if is_full else ()
        return (f"#{hour}:{match['minute'] or '00'}", *hours), hours
    if kind == "date":
        return _dated(written, language)
    return (f"#{_canonical(written)}",), ()


def _dated(written: str, language: str) -> tuple[tuple[str, ...], ...]:
    is_plain = re.fullmatch(r"--.+|\d{4}-\d\d", written)
    dates = (written,) if is_plain else numeric_date(written, language)
    keys = tuple(f"#{each}" for each in dates or (written,))
    if len(keys) > 1:
        return (f"#{written}", *keys), ()
    return keys, tuple(f"#{each}" for each in date_keys(keys[0][1:])) if dates else ()


def _canonical(written: str) -> str:
    """Return a number without separators of thousands: 1000 for 1,000 and 1.000, 1.5 for 1,5."""
    number = written.translate(_WRITINGS).rstrip("dhnrst")
    sign, number = ("-", number[1:]) if number[0] == "-" else ("", number)
    if found := _THOUSANDS.fullmatch(number):
        number = re.sub(r"\D", "", found[1]) + (f".{found[3]}" if found[3] else "")
    elif re.fullmatch(r"\d*[.,]\d+", number):
        number = f"{'0' if number[0] in '.,' else ''}{number.replace(',', '.')}"
    return sign + re.sub(r"\.0+$", "", number)


def _longest_part(word: str) -> str:
    """Return a word without possessives, elisions and endings: Anna for Anna's and d'Anna."""
    if word.isalnum():
        return word
    parts = _APOSTROPHES.split(word)
    whole = [part for part in parts if part.lower() not in _CONTRACTIONS]
    if len(whole) > 1 and len(parts[0]) > 1 and parts[0][0].isupper() and parts[-1].islower():
        return parts[0]
    if parts[-1].lower() == "t":  # don't
        return "".join(parts)
    return max(whole or parts, key=len)


def date_keys(key: str) -> tuple[str, ...]:
    """Return the parts of a date: its year, month (--03) and day of any year (--03-03)."""
    year, month, day = key.split("-") if len(key) == 10 else (*key.rsplit("-", 1), "")
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
def _written_date(language: str) -> re.Pattern[str]:
    names = "|".join(map(re.escape, months(language)))
    month, year = rf"\b({names})\b\.?", rf"(?:,?\s+{_OF}(\d{{4}})\b)?"
    return re.compile(
        rf"\b{_DAY}\s*{_OF}{month}{year}|{month}\s+(?:the\s+)?{_DAY}{year}|{month}{year}",
        re.IGNORECASE,
    )


def with_plain_dates(text: str, language: str) -> str:
    """Return a text with the dates that name their month as 2026-03-03, --03-03 or 2026-03."""
    numbers = months(language)
    if numbers.keys().isdisjoint(map(fold, re.findall(r"[^\W\d_]+", text))):
        return text

    def plain(found: re.Match[str]) -> str:
        day, year = found[1] or found[5], found[3] or found[6] or found[8]
        name = found[2] or found[4] or found[7]
        is_day = day is not None and 1 <= int(day) <= 31
        is_word = fold(name) in _ALSO_WORDS and (language != "en" or not name[0].isupper())
        if not is_day and (day or (is_word and not year)):
            return found[0]
        date = f"{year or '-'}-{numbers[fold(name)]:02}"
        return f" {date}-{int(day):02} " if is_day else f" {date} "

    return _written_date(language).sub(plain, text)


def without_filler(text: str, language: str, script: str) -> str:
    """Return a text without labels, phrases that say nothing, and an opening like "Note that"."""
    plain = one_of("empty", script or language).sub(" ", _LABEL.sub(_without_label, text))
    return _without_opening(plain, language)


def _without_label(found: re.Match[str]) -> str:
    words = [fold(word) for word in found.groups() if word]
    return "·" if listed("labels", "all").issuperset(words) else found[0]


def _without_opening(text: str, language: str) -> str:
    """Return a text without a clause that only says that something is said: "Note that"."""
    end, before, seen = 0, "", set[str]()
    tables = roles(language)
    for found in _WORD_OR_MARK.finditer(text):
        word = fold(found[0])
        listed_on = {*tables.get(word, ())}
        if word in ":,;" or "that" in listed_on:
            end = found.end() if "saying" in seen else end
        elif "asking" in seen and "that" in tables.get(f"{before}_{word}", ()):
            end = found.end()
        elif not listed_on & _OPENING and (listed_on & _CHANGING or not is_small(word, language)):
            break
        before, seen = word, seen | listed_on
    return text[end:] if re.search(r"\w", text[end:]) else text
