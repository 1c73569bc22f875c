"""The clock, and simulations that live ahead of it."""

import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest

from refine import clock

WEEK = timedelta(weeks=1)
EAST = timezone(timedelta(hours=5))


def lead() -> timedelta:
    """How far the application's clock is ahead of the machine's, to the minute."""
    minutes = (clock.now() - datetime.now(UTC)) / timedelta(minutes=1)
    return timedelta(minutes=round(minutes))


def test_time_is_ahead_in_every_thread_until_the_block_ends():
    seen: list[timedelta] = []

    with clock.ahead(WEEK):
        thread = threading.Thread(target=lambda: seen.append(lead()))
        thread.start()
        thread.join()

    assert seen == [WEEK]
    assert lead() == timedelta(0)


def test_the_lead_of_an_outer_block_returns_after_an_inner_one_even_after_an_error():
    with clock.ahead(WEEK):
        with pytest.raises(RuntimeError), clock.ahead(2 * WEEK):
            raise RuntimeError
        outer = lead()

    assert outer == WEEK


@pytest.mark.parametrize(
    ("at", "spelled"),
    [
        (None, None),
        (datetime(2026, 3, 4, tzinfo=UTC), "2026-03-04T00:00:00.000000+00:00"),
        (datetime(2026, 3, 4, 5, 0, 0, 1, tzinfo=EAST), "2026-03-04T00:00:00.000001+00:00"),
        (datetime(1, 1, 1, 0, 0, 0, 10, tzinfo=UTC), "0001-01-01T00:00:00.000010+00:00"),
        (datetime(2026, 3, 4, 5, tzinfo=EAST), "2026-03-04T00:00:00.000000+00:00"),
    ],
)
def test_an_instant_has_one_spelling(at, spelled):
    assert clock.iso(at) == spelled


def test_days_are_those_of_utc_the_first_and_the_last_if_they_differ():
    at = datetime(2025, 11, 2, 15, tzinfo=UTC)

    assert clock.days(at) == clock.days(at, at + timedelta(hours=2)) == "2025-11-02"
    assert clock.days(at, datetime(2026, 3, 4, tzinfo=UTC)) == "2025-11-02 to 2026-03-04"
    assert clock.days(at.astimezone(timezone(timedelta(hours=14)))) == "2025-11-02"
