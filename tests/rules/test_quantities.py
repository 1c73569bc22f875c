"""Counts, costs and spans of time in words."""

from datetime import timedelta
from decimal import Decimal

import pytest

from refine.rules.quantities import (
    abbreviated,
    ago,
    cost_in_words,
    in_percent,
    plural,
    share_in_percent,
)


@pytest.mark.parametrize(
    ("count", "nouns", "expected"),
    [
        (0, None, "0 sessions"),
        (1, None, "1 session"),
        (1_200, None, "1,200 sessions"),
        (2, "sessiones", "2 sessiones"),
    ],
)
def test_a_noun_agrees_with_its_count(count: int, nouns: str | None, expected: str) -> None:
    assert plural(count, "session", nouns) == expected


@pytest.mark.parametrize(
    ("age", "expected"),
    [
        (timedelta(0), "0 seconds ago"),
        (timedelta(seconds=1), "1 second ago"),
        (timedelta(seconds=59), "59 seconds ago"),
        (timedelta(minutes=1), "1 minute ago"),
        (timedelta(minutes=59, seconds=59), "59 minutes ago"),
        (timedelta(hours=1), "1 hour ago"),
        (timedelta(hours=47), "1 day ago"),
        (timedelta(days=400), "400 days ago"),
        (timedelta(seconds=-30), "in 30 seconds"),
        (timedelta(days=-2), "in 2 days"),
    ],
)
def test_an_age_is_rounded_down_to_its_largest_unit(age: timedelta, expected: str) -> None:
    assert ago(age) == expected


@pytest.mark.parametrize(
    ("share", "expected"),
    [("0", "0%"), ("0.0001", "0.01%"), ("0.7500", "75%"), ("0.9", "90%"), ("1.0000", "100%")],
)
def test_a_share_is_exact_in_percent(share: str, expected: str) -> None:
    assert in_percent(Decimal(share)) == expected


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [(150, 500, "30%"), (1, 3, "33.4%"), (251, 1000, "25.1%"), (2501, 10_000, "25.1%")],
)
def test_a_part_is_rounded_up_in_percent(part: int, whole: int, expected: str) -> None:
    assert share_in_percent(part, whole) == expected


def test_up_to_20_items_are_listed_and_the_rest_is_counted():
    listed = [abbreviated(["x"] * count, ",") for count in (0, 1, 20, 21)]

    assert listed == ["", "x", ",".join("x" * 20), ",".join("x" * 20) + ",and 1 more"]


@pytest.mark.parametrize(
    ("cost_usd", "unpriced_calls", "expected"),
    [
        ("0", 0, "$0.00"),
        ("0.000012", 0, "$0.000012"),
        ("0.0123", 0, "$0.0123"),
        ("0.999", 0, "$0.9990"),
        ("1", 0, "$1.00"),
        ("1234.567", 0, "$1,234.57"),
        ("0", 1, "unknown"),
        ("0.000000", 7, "unknown"),
        ("0.0123", 1, "at least $0.0123"),
        ("12.346", 2, "at least $12.35"),
    ],
)
def test_a_cost_says_what_is_unknown(cost_usd: str, unpriced_calls: int, expected: str) -> None:
    assert cost_in_words(Decimal(cost_usd), unpriced_calls) == expected
