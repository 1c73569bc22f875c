"""Pauses: after sessions that removed nothing, and after failures."""

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refine.rules.pacing import LONGEST_COOLDOWN, RETRY_PAUSES, cooldown, retry_pause


@pytest.mark.parametrize(
    ("fruitless_sessions", "hours"),
    [(0, 24), (1, 48), (2, 96), (3, 168), (4, 168), (10, 168), (10_000, 168)],
)
def test_a_cooldown_doubles_with_each_fruitless_session_up_to_a_week(
    fruitless_sessions: int, hours: int
) -> None:
    assert cooldown(24, fruitless_sessions) == timedelta(hours=hours)


@pytest.mark.parametrize(
    ("setting", "fruitless_sessions", "hours"),
    [(1, 0, 1), (1, 1, 2), (1, 7, 128), (1, 8, 168), (6, 4, 96), (168, 0, 168), (168, 3, 168)],
)
def test_a_cooldown_begins_with_the_setting(
    setting: int, fruitless_sessions: int, hours: int
) -> None:
    assert cooldown(setting, fruitless_sessions) == timedelta(hours=hours)


@given(st.integers(1, 168), st.integers(0, 100))
def test_a_cooldown_is_never_shorter_than_the_one_before_nor_longer_than_a_week(
    setting: int, fruitless_sessions: int
) -> None:
    pauses = [cooldown(setting, fruitless_sessions + more) for more in (0, 1)]

    assert timedelta(hours=setting) <= pauses[0] <= pauses[1] <= LONGEST_COOLDOWN
    assert pauses[1] in (2 * pauses[0], LONGEST_COOLDOWN)


@pytest.mark.parametrize(
    ("attempt", "minutes"), [(1, 5), (2, 30), (3, 120)], ids=["first", "second", "third"]
)
def test_the_pause_after_a_failure_grows(attempt: int, minutes: int) -> None:
    assert retry_pause(attempt) == timedelta(minutes=minutes)


@pytest.mark.parametrize("attempt", [4, 5, 100])
def test_after_the_third_retry_there_is_no_other(attempt: int) -> None:
    assert retry_pause(attempt) is None


def test_each_pause_is_longer_than_the_one_before() -> None:
    assert all(earlier < later for earlier, later in pairwise(RETRY_PAUSES))
