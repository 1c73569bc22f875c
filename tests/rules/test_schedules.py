"""Cron expressions in plain words."""

import pytest

from refine.rules.schedules import in_words


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("0 4 * * 1", "on Mondays at 04:00"),
        ("5 16 * * 0", "on Sundays at 16:05"),
        ("5 16 * * 7", "on Sundays at 16:05"),
        ("30 0 * * *", "every day at 00:30"),
        ("0 4 * * 1,3", "on Mondays and Wednesdays at 04:00"),
        ("0 4 * * 1,3,5", "on Mondays, Wednesdays and Fridays at 04:00"),
        ("0 4 1 * *", "on day 1 of each month at 04:00"),
        ("0 4 31 * *", "on day 31 of each month at 04:00"),
        ("*/15 * * * *", "on the schedule */15 * * * *"),
        ("0 4,16 * * *", "on the schedule 0 4,16 * * *"),
        ("0 4 * * 1-5", "on the schedule 0 4 * * 1-5"),
        ("0 4 * * mon", "on the schedule 0 4 * * mon"),
        ("0 4 1 1 *", "on the schedule 0 4 1 1 *"),
        ("0 4 1 * 1", "on the schedule 0 4 1 * 1"),
        ("0 4 * 6 1", "on the schedule 0 4 * 6 1"),
        ("0 4 l * *", "on the schedule 0 4 l * *"),
    ],
)
def test_a_schedule_is_told_in_words_or_as_it_stands(schedule: str, words: str) -> None:
    assert in_words(schedule) == words
