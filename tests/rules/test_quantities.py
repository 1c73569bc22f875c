"""Counts and spans of time in words."""

from datetime import timedelta

import pytest

from refine.rules.quantities import ago, plural


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
