"""How much a session may remove: never more than allowed, to the token."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, strategies as st

from refine.rules.retention import (
    longest_update,
    parse_threshold,
    removable_tokens,
    removable_under_floor,
    removable_under_threshold,
    retained_tokens,
    sessions_to,
)
from tests.rules.refusing import cases, not_refused

masses = st.integers(0, 10_000_000)
shares = st.integers(0, 10_000).map(lambda n: Decimal(n) / 10_000)
thresholds = st.integers(1, 10_000).map(lambda n: Decimal(n) / 10_000)


def by_threshold(mass: int, threshold: Decimal) -> int:
    return removable_tokens(mass, threshold=threshold, rolling_floor=Decimal(0), removed_recently=0)


def test_threshold_share_is_rounded_up_in_favour_of_the_ledger():
    for mass, threshold, removable in (
        *((0, "0.75", 0), (1, "0.75", 0), (4, "0.75", 1), (100, "0.75", 25), (101, "0.75", 25)),
        *((104, "0.75", 26), (10, "0.9", 1), (10, "1", 0)),
        *((10_000, "0.0001", 9_999), (10_001, "0.0001", 9_999)),
        (100, "0.07", 93),  # 7.000000000000001 in floats
        (100, "0.29", 71),  # 28.999999999999996 in floats
    ):
        assert by_threshold(mass, Decimal(threshold)) == removable, (mass, threshold)
        assert removable_under_threshold(mass, Decimal(threshold)) == removable, (mass, threshold)


def test_floor_is_a_share_of_the_mass_before_recent_sessions():
    for mass, floor, removed_recently, removable in (
        *((100, "0.5", 0, 50), (101, "0.5", 0, 50), (100, "0.5", 50, 25), (100, "0.5", 99, 0)),
        *((100, "0.5", 100, 0), (100, "0.5", 102, -1), (100, "0", 10_000, 100), (100, "1", 0, 0)),
        (0, "0.5", 0, 0),
    ):
        allowed = removable_under_floor(mass, Decimal(floor), removed_recently)
        assert allowed == removable, (mass, floor, removed_recently)


def test_the_smaller_allowance_counts_but_at_least_zero():
    for removed_recently, removable in ((0, 25), (50, 25), (52, 24), (98, 1), (100, 0), (500, 0)):
        allowed = removable_tokens(
            100,
            threshold=Decimal("0.75"),
            rolling_floor=Decimal("0.5"),
            removed_recently=removed_recently,
        )
        assert allowed == removable, removed_recently


@given(masses, thresholds, shares, masses)
def test_one_token_more_would_break_threshold_or_floor(mass, threshold, floor, recent):
    lowest = max(Fraction(threshold) * mass, Fraction(floor) * (mass + recent))

    allowed = removable_tokens(
        mass, threshold=threshold, rolling_floor=floor, removed_recently=recent
    )

    assert 0 <= allowed <= mass
    assert mass - allowed >= lowest or allowed == 0
    assert mass - (allowed + 1) < lowest


def test_an_update_may_lengthen_by_eight_tokens_or_a_tenth():
    assert [longest_update(tokens) for tokens in (1, 80, 90)] == [9, 88, 99]


def test_growth_counts_nothing():
    assert [retained_tokens(10, now) for now in (7, 10, 900)] == [7, 10, 10]


def test_reads_numbers_and_their_plain_spelling():
    for value, threshold in (
        *((1, "1"), (1.0, "1"), ("1.", "1"), ("1", "1"), (0.75, "0.75"), ("0.75", "0.75")),
        *((".75", "0.75"), (" 0.75\n", "0.75"), ("0.75000000", "0.75"), (0.1, "0.1")),
        *((0.0001, "0.0001"), (Decimal("0.9999"), "0.9999"), (Decimal("1E-4"), "0.0001")),
    ):
        assert parse_threshold(value) == Decimal(threshold), value


def test_refuses_everything_else():
    no_numbers: list[Any] = [
        *(None, True, False, [], [0.75], {}, b"0.75", complex(1)),
        *cases(
            "| |.|abc|0.75abc|75%|3/4|0,75|0.7.5|7.5e-1|1e0|0x1|0_1|+0.75|-0.75|０.７５|½|0 .75"
        ),
        *cases("nan|NaN|inf|Infinity"),
        *(float("nan"), float("inf"), -float("inf")),
        *(Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity")),
    ]
    out_of_range: list[Any] = [
        *(0, 0.0, -0.0, "0", "0.0000", Decimal(0), -1, -0.5, "1.0001", 1.0001, 2, "75"),
        *("0.00001", "0.75001", 0.123456, 1e-300, Decimal("1E-999999")),
        *("0." + "9" * 5_000, "9" * 5_000, 10**5_000),
    ]

    refusal = "above 0 and at most 1, with at most 4 decimals"
    assert not_refused(parse_threshold, no_numbers + out_of_range, refusal) == []


@pytest.mark.parametrize(
    ("budget", "mass", "threshold", "sessions"),
    [(800, 800, "0.75", 0), (800, 1_000, "0.75", 1), (800, 1_790, "0.75", 3), (1, 3, "0.75", None)],
)
def test_sessions_that_take_all_they_may_lead_to_a_budget(budget, mass, threshold, sessions):
    assert sessions_to(budget, mass, Decimal(threshold)) == sessions
