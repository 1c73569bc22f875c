"""How much a session may remove, and what still counts of a ledger.

Retention is anchored at the snapshot: each entry has a ceiling, and counts at most that. The
ceiling of a memory of the ledger is what it had at the start; the ceiling of a merge result is
what its sources still counted. So growth in one place never pays for a loss in another.
"""

from decimal import ROUND_CEILING, Decimal


def counting_tokens(ceiling_tokens: int, tokens_now: int) -> int:
    """Return what a kept memory still counts: its tokens, at most its ceiling."""
    return min(ceiling_tokens, tokens_now)


def removable_tokens(
    mass: int, *, threshold: Decimal, rolling_floor: Decimal, removed_recently: int
) -> int:
    """Return how many of ``mass`` tokens one session may remove, 0 to ``mass``.

    The smaller of ``mass - ceil(threshold * mass)`` and ``removable_under_floor``, at least 0, in
    decimals: 0.9 of 10 is 9.
    """
    by_session = mass - _ceil(threshold * mass)
    by_floor = removable_under_floor(mass, rolling_floor, removed_recently)
    return max(0, min(by_session, by_floor))


def removable_under_floor(mass: int, rolling_floor: Decimal, removed_recently: int) -> int:
    """Return what the floor against slow erosion lets go; 0 or less where nothing may.

    ``removed_recently`` is what the loops of the last 30 days removed and nobody undid: the floor
    is a share of what there would be without them.
    """
    return mass - _ceil(rolling_floor * (mass + removed_recently))


def _ceil(number: Decimal) -> int:
    return int(number.to_integral_value(rounding=ROUND_CEILING))
