"""How far an edit may go, how much a session may remove, and how much of a ledger still counts.

Retention is anchored at the snapshot: each entry has a ceiling and counts at most that. The ceiling
of a memory in the ledger is its tokens at the snapshot; the ceiling of a merge result is the sum of
what its sources still counted. So growth in one place never pays for a loss in another.
"""

import re
from decimal import ROUND_CEILING, Decimal

from refine.errors import InvalidValue
from refine.rules.quantities import finite

DEFAULT_THRESHOLD = Decimal("0.75")
# A threshold is above the first, at most the second, and has at most so many decimals.
THRESHOLD_ABOVE, MAX_THRESHOLD = 0, 1
THRESHOLD_DECIMALS = 4
THRESHOLD_RANGE = (
    f"a number above {THRESHOLD_ABOVE} and at most {MAX_THRESHOLD}, "
    f"with at most {THRESHOLD_DECIMALS} decimals"
)

_PLAIN = re.compile(r"[0-9]*\.?[0-9]+|[0-9]+\.")


def retained_tokens(ceiling_tokens: int, tokens_now: int) -> int:
    return min(ceiling_tokens, tokens_now)


def removable_tokens(
    mass: int, *, threshold: Decimal, rolling_floor: Decimal, removed_recently: int
) -> int:
    by_floor = removable_under_floor(mass, rolling_floor, removed_recently)
    return max(0, min(removable_under_threshold(mass, threshold), by_floor))


def removable_under_threshold(mass: int, threshold: Decimal) -> int:
    """Return how many tokens the threshold lets go: of 10 at 0.9 one, in decimals, not floats."""
    return mass - _ceil(threshold * mass)


def sessions_to(budget: int, mass: int, threshold: Decimal) -> int | None:
    """Return how many sessions lead to the budget if each takes all the threshold lets go; None if
    none does.
    """
    sessions = 0
    while mass > budget:
        if not (removable := removable_under_threshold(mass, threshold)):
            return None
        mass, sessions = mass - removable, sessions + 1
    return sessions


def removable_under_floor(mass: int, rolling_floor: Decimal, removed_recently: int) -> int:
    """Return the tokens that the floor lets go, of the mass before the window; may be negative."""
    return mass - _ceil(rolling_floor * (mass + removed_recently))


def _ceil(number: Decimal) -> int:
    return int(number.to_integral_value(rounding=ROUND_CEILING))


# A merge takes at most this many memories, so that one call cannot swallow a ledger.
MAX_MERGED = 8

# An update tightens: it may lengthen a memory by this share, or by so many tokens if that is more.
LONGER_SHARE = Decimal("0.1")
LONGER_TOKENS = 8


def longest_update(tokens: int) -> int:
    """Return how many tokens an update may give a memory that had ``tokens`` at the snapshot."""
    return tokens + max(LONGER_TOKENS, int(LONGER_SHARE * tokens))


def parse_threshold(value: object) -> Decimal:
    """Return a number in ``THRESHOLD_RANGE``; InvalidValue for all else: nothing becomes 0."""
    is_words = isinstance(value, str) and not _PLAIN.fullmatch(value.strip())
    number = None if is_words else finite(value)
    if (
        number is None
        or not THRESHOLD_ABOVE < number <= MAX_THRESHOLD
        or number != round(number, THRESHOLD_DECIMALS)
    ):
        raise InvalidValue(f"refinement_threshold must be {THRESHOLD_RANGE}")
    return number


def threshold_check(column: str) -> str:
    return f"{column} > {THRESHOLD_ABOVE} AND {column} <= {MAX_THRESHOLD}"
