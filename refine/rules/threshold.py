"""The refinement threshold, as people and models write it."""

import re
from decimal import Decimal

from refine.errors import InvalidValue

DEFAULT_THRESHOLD = Decimal("0.75")
# A threshold is above the first, at most the second, and has at most so many decimals.
THRESHOLD_ABOVE, MAX_THRESHOLD = 0, 1
THRESHOLD_DECIMALS = 4
THRESHOLD_RANGE = (
    f"a number above {THRESHOLD_ABOVE} and at most {MAX_THRESHOLD}, "
    f"with at most {THRESHOLD_DECIMALS} decimals"
)

_PLAIN = re.compile(r"[0-9]*\.?[0-9]+|[0-9]+\.")


def parse_threshold(value: object) -> Decimal:
    """Return a refinement threshold: ``THRESHOLD_RANGE``.

    Accepts numbers and their plain decimal spelling. Raises InvalidValue for everything else, so
    that nothing unreadable ever becomes 0.
    """
    number = _decimal(value)
    if (
        number is None
        or not THRESHOLD_ABOVE < number <= MAX_THRESHOLD
        or number != round(number, THRESHOLD_DECIMALS)
    ):
        raise InvalidValue(f"refinement_threshold must be {THRESHOLD_RANGE}")
    return number


def threshold_check(column: str) -> str:
    """Return the range as an SQL condition; a column's type limits the decimals."""
    return f"{column} > {THRESHOLD_ABOVE} AND {column} <= {MAX_THRESHOLD}"


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
