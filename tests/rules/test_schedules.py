"""Schedules: slots in local time across every kind of clock change, and their words."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from refine.errors import InvalidValue
from refine.rules.schedules import (
    WeeklyTime,
    describe_schedule,
    last_slot,
    next_slot,
    valid_schedule,
    valid_time_zone,
)
from tests.rules.refusing import not_refused

MONDAYS_AT_FOUR = "0 4 * * 1"

# Each with a clock change of its own kind.
ZONES = [
    *("UTC", "Europe/Berlin", "America/New_York", "Australia/Sydney", "Australia/Lord_Howe"),
    *("Antarctica/Troll", "America/Havana", "Asia/Kathmandu", "Europe/Dublin"),
]

schedules = st.sampled_from(
    (
        *(MONDAYS_AT_FOUR, "30 2 * * *", "0 0 * * *", "*/20 * * * *", "15 1-3 * * *"),
        *("59 23 * * 0", "0 4 1 * *", "0 3 l 3,10 *", "0 2 29 2 *"),
    )
)
instants = st.datetimes(
    datetime(2005, 1, 1),  # noqa: DTZ001  (Hypothesis wants naive bounds, and adds the zone)
    datetime(2037, 12, 31),  # noqa: DTZ001
    timezones=st.just(UTC),
)
# Where it hurts: the hours around the clock changes of the zones above.
changes = st.tuples(
    st.sampled_from(
        (
            *("2026-03-08T06:00+00:00", "2026-03-29T01:00+00:00", "2026-04-04T15:00+00:00"),
            *("2026-10-03T16:00+00:00", "2026-10-25T01:00+00:00", "2026-11-01T06:00+00:00"),
        )
    ),
    st.integers(-5 * 3_600, 5 * 3_600),
).map(lambda change: utc(change[0]) + timedelta(seconds=change[1]))


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def test_a_slot_is_in_the_local_time_of_its_zone():
    for zone, at, following in (
        ("UTC", "2026-05-04T03:59:59+00:00", "2026-05-04T04:00+00:00"),
        ("Europe/Berlin", "2026-07-01T00:00+00:00", "2026-07-06T04:00+02:00"),
        ("America/New_York", "2026-01-01T00:00+00:00", "2026-01-05T04:00-05:00"),
        ("Asia/Kathmandu", "2026-01-01T00:00+00:00", "2026-01-05T04:00+05:45"),
        ("Pacific/Kiritimati", "2026-01-01T00:00+00:00", "2026-01-05T04:00+14:00"),
    ):
        assert next_slot(MONDAYS_AT_FOUR, zone, utc(at)) == utc(following)


@pytest.mark.parametrize(
    ("zone", "schedule", "before", "runs_at"),
    [
        ("Europe/Berlin", "30 2 * * *", "2026-03-28T12:00+01:00", "2026-03-29T03:00+02:00"),
        ("America/New_York", "30 2 * * *", "2026-03-07T12:00-05:00", "2026-03-08T03:00-04:00"),
        ("Australia/Sydney", "59 2 * * *", "2026-10-03T12:00+10:00", "2026-10-04T03:00+11:00"),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00+10:30", "2026-10-04T02:30+11:00"),
        ("Antarctica/Troll", "30 1 * * *", "2026-03-28T12:00+00:00", "2026-03-29T03:00+02:00"),
        ("America/Havana", "0 0 * * *", "2026-03-07T12:00-05:00", "2026-03-08T01:00-04:00"),
        ("Pacific/Apia", "0 4 30 12 *", "2011-12-29T12:00-10:00", "2011-12-31T00:00+14:00"),
    ],
)
def test_a_local_time_that_is_skipped_runs_at_the_next_valid_minute(
    zone, schedule, before, runs_at
):
    expected = utc(runs_at)

    slots = (
        next_slot(schedule, zone, utc(before)),
        last_slot(schedule, zone, expected),
        last_slot(schedule, zone, expected - timedelta(seconds=1)) < expected,
    )

    assert slots == (expected, expected, True)


@pytest.mark.parametrize(
    ("zone", "schedule", "first", "following"),
    [
        ("Europe/Berlin", "30 2 * * *", "2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"),
        ("America/New_York", "30 1 * * *", "2026-11-01T01:30-04:00", "2026-11-02T01:30-05:00"),
        ("Australia/Sydney", "30 2 * * *", "2026-04-05T02:30+11:00", "2026-04-06T02:30+10:00"),
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-05T01:45+11:00", "2026-04-06T01:45+10:30"),
        ("Antarctica/Troll", "30 1 * * *", "2026-10-25T01:30+02:00", "2026-10-26T01:30+00:00"),
        ("America/Havana", "30 0 * * *", "2026-11-01T00:30-04:00", "2026-11-02T00:30-05:00"),
    ],
)
def test_a_local_time_that_is_repeated_runs_once_the_first_time(zone, schedule, first, following):
    ran_at = utc(first)
    soon_after = ran_at + timedelta(minutes=31)
    second_time = ran_at + timedelta(hours=1, seconds=1)

    slots = (
        next_slot(schedule, zone, ran_at - timedelta(hours=3)),
        next_slot(schedule, zone, ran_at),
        last_slot(schedule, zone, soon_after),
        last_slot(schedule, zone, second_time),
        next_slot(schedule, zone, second_time),
    )

    assert slots == (ran_at, utc(following), ran_at, ran_at, utc(following))


@pytest.mark.parametrize("zone", ZONES)
@given(schedule=schedules, at=instants | changes)
def test_every_instant_lies_between_two_consecutive_slots(zone, schedule, at):
    last = last_slot(schedule, zone, at)

    following = next_slot(schedule, zone, at)

    assert last <= at < following
    assert next_slot(schedule, zone, last) == following
    assert last_slot(schedule, zone, following - timedelta(microseconds=1)) == last
    assert last_slot(schedule, zone, following) == following


def test_a_cron_expression_of_five_fields_is_a_schedule_with_single_spaces():
    for schedule in (MONDAYS_AT_FOUR, "*/5 * * * *", "0 4 * * mon-fri", "0 4 29 2 *", "0 4 l * *"):
        assert valid_schedule(schedule) == schedule
    assert valid_schedule(" 0  4 *\t*\n1 ") == MONDAYS_AT_FOUR


def test_refuses_anything_but_a_cron_expression_of_five_fields_that_comes_due():
    others = [
        *(None, 7, True, [MONDAYS_AT_FOUR], "", " ", "daily", "@weekly", "0 4 * *"),
        *("0 4 * * 1 0", "0 4 * * 1 0 2026", "60 4 * * 1", "0 24 * * 1", "0 4 0 * 1"),
        *("0 4 32 * 1", "0 4 * 13 1", "0 4 * * 8", "0 4 * * x", "*/0 * * * *", "-1 4 * * 1"),
        *("0 4 * * 1#6", "\uff10 \uff14 * * 1", "0 4 * * 1\x00"),
        *("0 4 30 2 *", "0 4 31 4,6,9,11 *", "0 4 29 2 1#1"),  # never
        *("R 4 * * 1", "0 r(3-5) * * *", "0 4 R * *", "R/5 * * * *"),  # at random
    ]

    refusal = "schedule must be a cron expression of five fields"
    assert not_refused(valid_schedule, others, refusal) == []
    long = f"{'0,' * 250}{MONDAYS_AT_FOUR}"
    assert not_refused(valid_schedule, [long], "at most 500 characters") == []
    with pytest.raises(InvalidValue, match="^REFINE_SCHEDULE must be"):
        valid_schedule("daily", field="REFINE_SCHEDULE")


def test_only_iana_names_are_time_zones():
    others = [
        *(None, 7, "", " ", "Berlin", "europe/berlin", "UTC+1", "+01:00", "../UTC"),
        *("/etc/passwd", "Europe/Berlin ", "Europe", "UTC\x00", ["UTC"]),
    ]

    assert [valid_time_zone(zone) for zone in ZONES] == ZONES
    assert not_refused(valid_time_zone, others, "time_zone must be an IANA name") == []


@given(
    days=st.sets(st.integers(0, 6), min_size=1),
    at=st.times().map(lambda time: time.replace(second=0, microsecond=0)),
)
def test_picked_days_and_time_are_found_again_in_their_cron_expression(days, at):
    picked = WeeklyTime.picked(list(map(str, days)), f"{at:%H:%M}")

    schedule = valid_schedule(picked.schedule)

    assert WeeklyTime.of(schedule) == picked == (tuple(sorted(days)), at)


def test_days_and_times_that_do_not_exist_are_refused():
    for days, at, problem in (
        ([], "04:00", "days must include at least one day of the week"),
        (["7", "Monday", "-1"], "04:00", "days must include"),
        (["1"], "", "time must be a time of day, such as 04:00"),
        (["1"], "25:00", "time must be a time of day"),
    ):
        with pytest.raises(InvalidValue, match=problem):
            WeeklyTime.picked(days, at)
    assert WeeklyTime.picked("0123456", "04:00").schedule == "0 4 * * *"


def test_describes_simple_schedules_and_quotes_the_others():
    for schedule, words in (
        (MONDAYS_AT_FOUR, "on Mondays at 04:00"),
        ("5 16 * * 7", "on Sundays at 16:05"),
        ("30 0 * * *", "every day at 00:30"),
        ("0 4 * * 1,3,5", "on Mondays, Wednesdays and Fridays at 04:00"),
        ("0 4 * * 0-1", "on Sundays and Mondays at 04:00"),
        ("0 4 * * mon", "on Mondays at 04:00"),
        ("0 4 * * 0-7", "every day at 04:00"),
        ("0 4 31 * *", "on day 31 of each month at 04:00"),
    ):
        assert describe_schedule(schedule) == words
    for schedule in (
        *("*/15 * * * *", "*/15 4 * * *", "0 4,16 * * *", "0 * * * *", "* 4 * * *", "*/5 4 1 * *"),
        *("0 */2 1 * *", "0 4 * * 1#2", "0 4 1 1 *", "0 4 1 * 1", "0 4 * 6 1", "0 4 l * *"),
    ):
        assert describe_schedule(schedule) == f"on the schedule {schedule}"
