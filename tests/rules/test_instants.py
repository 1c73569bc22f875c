"""Times as other systems write them, and months."""

import time
from datetime import UTC, date, datetime, timedelta

from hypothesis import given, strategies as st

from refine.rules.instants import EARLIEST, first_of_month, has_passed, instant
from tests.rules.refusing import not_refused

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
AT = datetime(2025, 11, 2, 15, 15, 30, tzinfo=UTC)


def read(written: object) -> datetime | None:
    return instant(written, now=NOW)


def test_reads_every_spelling_and_unit():
    for written, at in (
        ("2025-11-02T15:15:30Z", AT),
        (" 2025-11-02 15:15:30 ", AT),
        ("2025-11-02T15:15:30", AT),
        ("2025-11-02T07:15:30-08:00", AT),
        ("2025-11-02T15:15:30.123456789Z", AT.replace(microsecond=123_456)),
        ("2025-11-02", datetime(2025, 11, 2, tzinfo=UTC)),
        ("1980-01-01", EARLIEST),
        ("20251102", datetime(2025, 11, 2, tzinfo=UTC)),
        (1762096530, AT),
        ("1762096530", AT),
        (1762096530.5, AT.replace(microsecond=500_000)),
        (1762096530123, AT.replace(microsecond=123_000)),
        (1762096530123.5, AT.replace(microsecond=123_500)),
        (1762096530000.003, AT.replace(microsecond=3)),
        (1762096530123456, AT.replace(microsecond=123_456)),
        (1762096530123456789, AT.replace(microsecond=123_456)),
        ("1762096530123456789", AT.replace(microsecond=123_456)),
        *((blank, None) for blank in (None, "", "  ")),
    ):
        assert read(written) == at, written


def test_a_time_without_a_zone_is_utc_in_every_server_zone(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    try:
        assert read("2025-11-02T15:15:30") == AT
    finally:
        monkeypatch.undo()
        time.tzset()


def test_refuses_other_values_and_times_out_of_range():
    tomorrow = NOW + timedelta(days=1)  # a clock may be ahead
    others = ["soon", "2025-13-01", "1762096530,5", True, [], {}, 10**20, "9" * 30, float("nan")]

    assert read(tomorrow.isoformat()) == tomorrow
    assert not_refused(read, [*others, "²" * 9, "١٧٦٢٠٩٦٥٣٠"], "is not a time") == []
    assert not_refused(read, ["0001-01-01T00:00:00+14:00"], "is not a time") == []
    early = [0, -1, "1979-12-31", "0001-01-02T00:00:00Z"]
    assert not_refused(read, early, "lies before 1980") == []
    later = (tomorrow + timedelta(seconds=1)).isoformat()
    assert not_refused(read, [later], "lies in the future") == []


def test_a_time_or_day_has_passed_when_it_is_over():
    for written, passed in (
        ("2026-03-03", True),
        ("2026-03-04", False),
        ("20260303", True),
        ("2026-03-04T12:00:00Z", True),
        ("2026-03-04T12:00:01Z", False),
        ("2026-03-04T13:00:00+02:00", True),
        (1762096530, True),
        ("1970-01-01", True),
        ("9999-12-31T23:59:59Z", False),
        *((blank, False) for blank in (None, "", "  ")),
    ):
        assert has_passed(written, now=NOW) == passed, written

    refused = not_refused(lambda written: has_passed(written, now=NOW), ["soon", True], "is not a")
    assert refused == []


@given(
    st.datetimes(
        EARLIEST.replace(tzinfo=None), NOW.replace(tzinfo=None), timezones=st.just(UTC)
    ).filter(lambda at: at >= EARLIEST)
)
def test_every_time_survives_its_iso_spelling_and_its_microseconds(at):
    microseconds = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    assert read(at.isoformat()) == read(microseconds) == read(microseconds * 1000 + 999) == at


def test_months_are_counted_from_any_of_their_days():
    for day, later, first in (
        *(("2026-11-23", 0, "2026-11-01"), ("2026-12-31", 1, "2027-01-01")),
        *(("2026-01-31", -1, "2025-12-01"), ("2026-11-30", -11, "2025-12-01")),
        *(("2026-12-01", -12, "2025-12-01"), ("2024-02-29", 24, "2026-02-01")),
    ):
        assert first_of_month(date.fromisoformat(day), later) == date.fromisoformat(first)
