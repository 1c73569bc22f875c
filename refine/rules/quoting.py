"""Whether a provider's code or name may quote what it was sent."""

import re
from collections.abc import Collection

_WORD = re.compile(r"[^\W\d_]{4,}")
_NUMBER = re.compile(r"\d{3,}")
# Counts as one number; otherwise almost every ledger would contain the year of a dated name.
_DATE = re.compile(r"(?<!\d)(20\d\d)-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])(?!\d)")
_HUMP = re.compile(r"(?<=[a-z\d])(?=[A-Z])")
# Line breaks and other marks as JSON writes them, once or twice. A run of backslashes is read once.
_ESCAPE = re.compile(r"(?<!\\)\\+(?:[bfnrt]|u[0-9a-f]{4})")


def may_quote(value: str, sent: str, *, known: Collection[str] = ()) -> bool:
    """Tell whether a word of four letters or a number of three digits stands in what was ``sent``.

    Whatever joins the words, and regardless of case; ``known`` words, in lower case, do not count.
    """
    return shares_words(value, said_in(sent), known=known)


def shares_words(value: str, said: Collection[str], *, known: Collection[str] = ()) -> bool:
    """Tell the same as ``may_quote`` about what was ``said_in`` what was sent."""
    return not _pieces(value, known).isdisjoint(said)


def said_in(sent: str) -> set[str]:
    """Return the words and numbers that stand in what was sent, which may be JSON."""
    return words_and_numbers(sent) | words_and_numbers(_ESCAPE.sub(" ", sent))


def _pieces(value: str, known: Collection[str]) -> set[str]:
    pieces = words_and_numbers(value) | words_and_numbers(_HUMP.sub(" ", value))
    return pieces - set(known)


def words_and_numbers(text: str) -> set[str]:
    """Return the words of four letters and the numbers of three digits, in lower case."""
    text = _DATE.sub(r"\1\2\3", text.casefold())
    return {*_WORD.findall(text), *_NUMBER.findall(text)}
