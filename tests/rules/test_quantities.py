"""Counts, costs and spans of time in words."""

from datetime import timedelta
from decimal import Decimal

from refine.rules.quantities import (
    abbreviated,
    ago,
    cost_in_words,
    in_percent,
    plural,
    share_in_percent,
)


def test_a_noun_agrees_with_its_count():
    counted = [plural(count, "session") for count in (0, 1, 1_200)]

    assert counted == ["0 sessions", "1 session", "1,200 sessions"]
    assert plural(2, "memory", "memories") == "2 memories"


def test_an_age_is_rounded_down_to_its_largest_unit():
    for seconds, expected in (
        *((0, "0 seconds ago"), (1, "1 second ago"), (59, "59 seconds ago"), (60, "1 minute ago")),
        *((3_599, "59 minutes ago"), (3_600, "1 hour ago"), (47 * 3_600, "1 day ago")),
        *((400 * 86_400, "400 days ago"), (-30, "in 30 seconds"), (-2 * 86_400, "in 2 days")),
    ):
        assert ago(timedelta(seconds=seconds)) == expected


def test_a_share_is_exact_and_a_part_is_rounded_up_in_percent():
    shares = [in_percent(Decimal(share)) for share in ("0", "0.0001", "0.7500", "1.0000")]
    parts = [share_in_percent(*part) for part in ((150, 500), (1, 3), (251, 1000), (2501, 10_000))]

    assert shares == ["0%", "0.01%", "75%", "100%"]
    assert parts == ["30%", "33.4%", "25.1%", "25.1%"]


def test_up_to_20_items_are_listed_and_the_rest_is_counted():
    listed = [abbreviated(["x"] * count, ",") for count in (0, 1, 20, 21)]

    assert listed == ["", "x", ",".join("x" * 20), ",".join("x" * 20) + ",and 1 more"]


def test_a_cost_names_unpriced_calls():
    for cost_usd, unpriced_calls, expected in (
        *(("0", 0, "$0.00"), ("0.000012", 0, "$0.000012"), ("0.0123", 0, "$0.0123")),
        *(("0.999", 0, "$0.9990"), ("1", 0, "$1.00"), ("1234.567", 0, "$1,234.57")),
        *(("0.000000", 7, "unknown"), ("0.0123", 1, "at least $0.0123")),
        ("12.346", 2, "at least $12.35"),
    ):
        assert cost_in_words(Decimal(cost_usd), unpriced_calls) == expected
