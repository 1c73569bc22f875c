"""The refinement threshold, as people and models write it."""

import re
from decimal import Decimal

from refine.errors import InvalidValue

THRESHOLD_RANGE = "a number above 0 and at most 1, with at most 4 decimals"

_PLAIN = re.compile(r"[0-9]*\.?[0-9]+|[0-9]+\.")


def parse_threshold(value: object) -> Decimal:
    """Return a refinement threshold: 0 < t <= 1, at most 4 decimals.

    Accepts numbers and their plain decimal spelling. Raises InvalidValue for everything else, so
    that nothing unreadable ever becomes 0.
    """
    number = _decimal(value)
    if number is None or not 0 < number <= 1 or number != round(number, 4):
        raise InvalidValue(f"refinement_threshold must be {THRESHOLD_RANGE}")
    return number


def _decimal(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    if isinstance(value, str) and not _PLAIN.fullmatch(value.strip()):
        return None
    try:
        number = Decimal(str(value).strip())
    except ValueError:  # Python does not convert an int of 5,000 digits
        return None
    return number if number.is_finite() else None
