"""Cron expressions in plain words."""

from refine.rules.schedules import describe_schedule


def test_describes_simple_schedules_and_quotes_the_others() -> None:
    for schedule, words in (
        ("0 4 * * 1", "on Mondays at 04:00"),
        ("5 16 * * 0", "on Sundays at 16:05"),
        ("5 16 * * 7", "on Sundays at 16:05"),
        ("30 0 * * *", "every day at 00:30"),
        ("0 4 * * 1,3", "on Mondays and Wednesdays at 04:00"),
        ("0 4 * * 1,3,5", "on Mondays, Wednesdays and Fridays at 04:00"),
        ("0 4 1 * *", "on day 1 of each month at 04:00"),
        ("0 4 31 * *", "on day 31 of each month at 04:00"),
        *(
            (schedule, f"on the schedule {schedule}")
            for schedule in (
                *("*/15 * * * *", "0 4,16 * * *", "0 4 * * 1-5", "0 4 * * mon", "0 4 1 1 *"),
                *("0 4 1 * 1", "0 4 * 6 1", "0 4 l * *"),
            )
        ),
    ):
        assert describe_schedule(schedule) == words
