"""The canonical form of a number, however it is written."""

import re
from decimal import Decimal

# Longer numbers are not multiplied: "5 million" is 5000000.
_MAX_MULTIPLIED_CHARACTERS = 15

_THOUSANDS = re.compile(r"([1-9]\d{0,2}([ .,'])\d{3}(?:\2\d{3})*)(?:(?!\2)[.,](\d+))?")
_DECIMAL = re.compile(r"(\d+)[.,](\d+)")
_WRITINGS = str.maketrans({"٬": ",", "٫": ".", "’": "'", "−": "-", "–": "-"})


def ascii_digits(text: str) -> str:
    """Return ``text`` with the digits of all scripts as 0 to 9."""
    if text.isascii():
        return text
    return "".join(str(int(each)) if each.isdecimal() else each for each in text)


def canonical(written: str) -> str:
    """Return a number without separators of thousands, with a decimal point and its minus sign.

    ``1,000``, ``1.000`` and ``1 000`` give ``1000``; ``1,5`` gives ``1.5``, ``.5`` gives ``0.5``.
    Leading zeros stay (``0042`` is no 42), and so do versions (``2.12.1``) and fractions.
    """
    number = ascii_digits(written.translate(_WRITINGS)).lower().removeprefix("v")
    sign = "-" if number.startswith("-") else ""
    number = number.removeprefix("-")
    if number.startswith("."):
        number = f"0{number}"
    if found := _THOUSANDS.fullmatch(number):
        whole, decimals = re.sub(r"\D", "", found[1]), found[3] or ""
    elif found := _DECIMAL.fullmatch(number):
        whole, decimals = found[1], found[2]
    else:
        return sign + number
    return sign + whole + (f".{decimals}" if decimals.strip("0") or len(decimals) == 1 else "")


def multiplied(number: str, by: int) -> str:
    """Return the canonical product; the number itself if it cannot be multiplied."""
    if len(number) > _MAX_MULTIPLIED_CHARACTERS or not _plain(number):
        return number
    return f"{(Decimal(number) * by).normalize():f}"


def phone_digits(written: str) -> str:
    """Return the digits of a phone number; ``+`` and ``00`` before a country are the same."""
    return re.sub(r"\D", "", ascii_digits(written)).removeprefix("00")


def _plain(number: str) -> bool:
    return re.fullmatch(r"-?\d+(?:\.\d+)?", number) is not None
