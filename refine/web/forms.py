"""What forms send, brought into the form that is stored."""

from refine.errors import InvalidValue

_MAX_DIGITS = 12


def whole_number(text: str, field: str) -> int:
    """Return the number that somebody typed, with separators or without; or InvalidValue."""
    digits = text.replace(",", "").strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _MAX_DIGITS:
        raise InvalidValue(f"{field} must be a whole number")
    return int(digits)
