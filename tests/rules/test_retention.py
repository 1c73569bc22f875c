"""How much a session may remove: never more than allowed, to the token."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refine.rules.retention import counting_tokens, removable_tokens, removable_under_floor

masses = st.integers(0, 10_000_000)
shares = st.integers(0, 10_000).map(lambda n: Decimal(n) / 10_000)
thresholds = st.integers(1, 10_000).map(lambda n: Decimal(n) / 10_000)
NO_FLOOR = Decimal(0)


def by_threshold(mass: int, threshold: str) -> int:
    return removable_tokens(
        mass, threshold=Decimal(threshold), rolling_floor=NO_FLOOR, removed_recently=0
    )


@pytest.mark.parametrize(
    ("mass", "threshold", "removable"),
    [
        (0, "0.75", 0),
        (1, "0.75", 0),
        (4, "0.75", 1),
        (100, "0.75", 25),
        (101, "0.75", 25),
        (104, "0.75", 26),
        (10, "0.9", 1),
        (10, "1", 0),
        (10_000, "0.0001", 9_999),
        (10_001, "0.0001", 9_999),
        (100, "0.07", 93),  # 7.000000000000001 in floats
        (100, "0.29", 71),  # 28.999999999999996 in floats
    ],
)
def test_the_threshold_leaves_its_share_rounded_up_for_the_ledger(
    mass: int, threshold: str, removable: int
) -> None:
    assert by_threshold(mass, threshold) == removable


@pytest.mark.parametrize(
    ("mass", "floor", "removed_recently", "removable"),
    [
        (100, "0.5", 0, 50),
        (101, "0.5", 0, 50),
        (100, "0.5", 50, 25),
        (100, "0.5", 99, 0),
        (100, "0.5", 100, 0),
        (100, "0.5", 102, -1),
        (100, "0", 10_000, 100),
        (100, "1", 0, 0),
        (0, "0.5", 0, 0),
    ],
)
def test_the_floor_is_a_share_of_what_there_was_before_recent_loops(
    mass: int, floor: str, removed_recently: int, removable: int
) -> None:
    assert removable_under_floor(mass, Decimal(floor), removed_recently) == removable


@pytest.mark.parametrize(
    ("removed_recently", "removable"), [(0, 25), (50, 25), (52, 24), (98, 1), (100, 0), (500, 0)]
)
def test_the_smaller_of_threshold_and_floor_counts_and_never_less_than_nothing(
    removed_recently: int, removable: int
) -> None:
    allowed = removable_tokens(
        100,
        threshold=Decimal("0.75"),
        rolling_floor=Decimal("0.5"),
        removed_recently=removed_recently,
    )

    assert allowed == removable


@given(masses, thresholds, shares, masses)
def test_what_stays_is_never_below_threshold_or_floor_and_one_token_more_would_be(
    mass: int, threshold: Decimal, floor: Decimal, recent: int
) -> None:
    lowest = max(Fraction(threshold) * mass, Fraction(floor) * (mass + recent))

    allowed = removable_tokens(
        mass, threshold=threshold, rolling_floor=floor, removed_recently=recent
    )

    assert 0 <= allowed <= mass
    assert mass - allowed >= lowest or allowed == 0
    assert mass - (allowed + 1) < lowest


@given(masses, thresholds, thresholds)
def test_a_higher_threshold_never_lets_more_go(mass: int, one: Decimal, other: Decimal) -> None:
    lower, higher = sorted([one, other])

    assert by_threshold(mass, str(higher)) <= by_threshold(mass, str(lower))


@given(masses, shares, masses, masses)
def test_what_was_removed_before_never_lets_more_go(
    mass: int, floor: Decimal, one: int, other: int
) -> None:
    less, more = sorted([one, other])

    assert removable_under_floor(mass, floor, more) <= removable_under_floor(mass, floor, less)


@given(masses, masses, thresholds)
def test_a_larger_ledger_never_lets_less_go(one: int, other: int, threshold: Decimal) -> None:
    smaller, larger = sorted([one, other])

    assert by_threshold(smaller, str(threshold)) <= by_threshold(larger, str(threshold))


@pytest.mark.parametrize(("ceiling", "now", "counts"), [(10, 7, 7), (10, 10, 10), (10, 900, 10)])
def test_a_memory_counts_its_tokens_but_growth_counts_nothing(
    ceiling: int, now: int, counts: int
) -> None:
    assert counting_tokens(ceiling, now) == counts
