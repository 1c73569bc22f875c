"""Numbers as they are given; counts, shares, costs and spans of time in words."""

from collections.abc import Sequence
from datetime import timedelta
from decimal import ROUND_CEILING, Decimal

# At most this many items of a list are named, for example in a note that must fit a memory.
MAX_LISTED = 20

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def finite(value: object) -> Decimal | None:
    """Return the finite number that a value is, or that a text names; None for all else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        number = Decimal(str(value))
    except (ArithmeticError, ValueError):  # Python does not convert an int of 5,000 digits
        return None
    return number if number.is_finite() else None


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """Return a count with its noun: "1 session", "1,200 sessions", "2 memories"."""
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


def in_percent(share: Decimal) -> str:
    return f"{(share * 100).normalize():f}%"


def share_in_percent(part: int, whole: int) -> str:
    """Return a share, rounded up so that none above a limit seems within: "33.4%" for 1 of 3."""
    return in_percent((Decimal(part) / whole).quantize(Decimal("0.001"), ROUND_CEILING))


def cost_in_words(cost_usd: Decimal, unpriced_calls: int) -> str:
    """Return "$0.0123" or "$12.35"; with unpriced calls "at least $0.0123" or "unknown"."""
    if not unpriced_calls:
        return _in_dollars(cost_usd)
    return f"at least {_in_dollars(cost_usd)}" if cost_usd else "unknown"


def _in_dollars(usd: Decimal) -> str:
    if usd == 0 or usd >= 1:
        return f"${usd:,.2f}"
    # the columns have six places
    return f"${usd:.4f}" if usd >= Decimal("0.0001") else f"${usd:.6f}"


def rough_span(span: timedelta) -> str:
    """Return a span in its largest full unit, rounded down: "47 minutes", "1 day"."""
    seconds = max(0, int(span.total_seconds()))
    size, unit = next((each for each in _UNITS if seconds >= each[0]), _UNITS[-1])
    return plural(seconds // size, unit)


def in_hours(span: timedelta) -> str:
    return plural(span // timedelta(hours=1), "hour")


def in_days(span: timedelta) -> str:
    return plural(span.days, "day")


def ago(age: timedelta) -> str:
    """Return how long ago something was: "2 hours ago"; for a negative age "in 2 hours"."""
    return f"in {rough_span(-age)}" if age < timedelta(0) else f"{rough_span(age)} ago"


def abbreviated(items: Sequence[str], separator: str, most: int = MAX_LISTED) -> str:
    more = len(items) - most
    return separator.join([*items[:most], *([f"and {more} more"] if more > 0 else [])])
