"""Days and times as people and other programs write them."""

from datetime import UTC, datetime

import pytest

from refine.errors import InvalidValue
from refine.transfer.dates import day_in, time_of, without_day

DAY = datetime(2025, 4, 1, tzinfo=UTC)
EIGHT = DAY.replace(hour=8)


@pytest.mark.parametrize(
    ("written", "at"),
    [
        ("2025-04-01T08:00:00Z", EIGHT),
        ("2025-04-01 08:00:00 UTC", EIGHT),
        ("2025-04-01 10:00:00 +0200", EIGHT),
        ("2025/04/01 08:00", EIGHT),
        ("Tue, 01 Apr 2025 08:00:00 GMT", EIGHT),
        ("2025/4/1", DAY),
        ("1. April 2025", DAY),
        ("01.04.2025", DAY),
        ("April 1st, 2025, 8:00 AM", DAY),
        (1743494400, EIGHT),
        (None, None),
    ],
)
def test_a_time_is_read_as_it_is_written(written, at):
    assert time_of(written) == at


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("tomorrow", "is not a time"),
        ("01/04/2025", "is not a time"),
        ("since 2025-04-01", "is not a time"),
        ("2025/13/01", "is not a time"),
        (["2025/04/01"], "is not a time"),
        ("1 April 2199", "lies in the future"),
    ],
)
def test_what_is_no_time_or_may_be_two_is_refused(written, reason):
    with pytest.raises(InvalidValue, match=reason):
        time_of(written)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("2025-04-01", ""),
        ("2025_04_01", ""),
        ("2025-04-01 (Tuesday)", ""),
        ("Tue, 1 April 2025", ""),
        ("2025-04-01-the-sloop", "the-sloop"),
        ("The sloop (Apr 1, 2025)", "The sloop"),
        ("Log – 2025-04-01 – harbour", "Log harbour"),
    ],
)
def test_a_heading_is_dated_and_says_the_rest(text, rest):
    assert (day_in(text), without_day(text)) == (DAY, rest)


def test_a_text_without_a_day_stays_as_it_is():
    for text in ("The sloop", "2025-13-01", "12025-04-01"):
        assert day_in(text) is None, text
    assert without_day("- The sloop -") == "- The sloop -"
