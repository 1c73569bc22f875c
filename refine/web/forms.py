"""Parsing of what forms send."""

from refine.errors import InvalidValue

_MAX_DIGITS = 12


def whole_number(text: str, field: str) -> int:
    """Parse a whole number, with or without thousands separators; raises InvalidValue."""
    digits = text.replace(",", "").strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _MAX_DIGITS:
        raise InvalidValue(f"{field} must be a whole number")
    return int(digits)
