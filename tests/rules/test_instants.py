"""Times as other systems write them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refine.errors import InvalidValue
from refine.rules.instants import EARLIEST, instant

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
AT = datetime(2025, 11, 2, 15, 15, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "at"),
    [
        ("2025-11-02T15:15:30Z", AT),
        (" 2025-11-02 15:15:30 ", AT),
        ("2025-11-02T15:15:30", AT),
        ("2025-11-02T07:15:30-08:00", AT),
        ("2025-11-02T15:15:30.123456789Z", AT.replace(microsecond=123_456)),
        ("2025-11-02", datetime(2025, 11, 2, tzinfo=UTC)),
        ("20251102", datetime(2025, 11, 2, tzinfo=UTC)),
        (1762096530, AT),
        ("1762096530", AT),
        (1762096530.5, AT.replace(microsecond=500_000)),
        (1762096530123, AT.replace(microsecond=123_000)),
        (1762096530123.5, AT.replace(microsecond=123_500)),
        (1762096530123456, AT.replace(microsecond=123_456)),
        (1762096530123456789, AT.replace(microsecond=123_456)),
        ("1762096530123456789", AT.replace(microsecond=123_456)),
    ],
)
def test_a_time_is_read_in_any_spelling_and_unit(written: object, at: datetime) -> None:
    assert instant(written, now=NOW) == at


@pytest.mark.parametrize("blank", [None, "", "  "])
def test_a_blank_is_no_time_and_no_fault(blank: object) -> None:
    assert instant(blank, now=NOW) is None


@pytest.mark.parametrize(
    "written",
    ["soon", "2025-13-01", "1762096530,5", True, [], {}, 10**20, "9" * 30, float("nan"), "²" * 9],
)
def test_what_is_no_time_is_refused(written: object) -> None:
    with pytest.raises(InvalidValue, match="is not a time"):
        instant(written, now=NOW)


@pytest.mark.parametrize("written", [0, -1, "1979-12-31", "0001-01-02T00:00:00Z"])
def test_a_time_before_all_agents_is_refused(written: object) -> None:
    with pytest.raises(InvalidValue, match="lies before 1980"):
        instant(written, now=NOW)


def test_a_time_in_the_future_is_refused_but_a_clock_may_be_ahead() -> None:
    tomorrow = NOW + timedelta(days=1)

    assert instant(tomorrow.isoformat(), now=NOW) == tomorrow
    with pytest.raises(InvalidValue, match="lies in the future"):
        instant((tomorrow + timedelta(seconds=1)).isoformat(), now=NOW)


def test_a_time_beyond_the_calendar_is_refused() -> None:
    with pytest.raises(InvalidValue, match="is not a time"):
        instant("0001-01-01T00:00:00+14:00", now=NOW)


@given(
    st.datetimes(
        EARLIEST.replace(tzinfo=None), NOW.replace(tzinfo=None), timezones=st.just(UTC)
    ).filter(lambda at: at >= EARLIEST)
)
def test_every_time_survives_its_iso_spelling_and_its_microseconds(at: datetime) -> None:
    microseconds = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    assert instant(at.isoformat(), now=NOW) == at
    assert instant(microseconds, now=NOW) == at
    assert instant(microseconds * 1000 + 999, now=NOW) == at
