"""Which month it is, how fast a ledger grows, and how long pauses are."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

from refine.rules.forecast import Growth, first_of_month
from refine.rules.pacing import cooldown, retry_pause

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)


def growth(**fields: Any) -> Growth:
    usual = {"tokens_before": 1_000, "tokens": 1_000, "removed_tokens": 0, "budget": 2_000}
    return Growth(**{"since": NOW - timedelta(days=14), "until": NOW, **usual, **fields})


def test_tokens_that_sessions_removed_had_been_saved_before() -> None:
    grown = growth(tokens=1_200, removed_tokens=300)

    assert (grown.saved_a_week, grown.removed_a_week) == (250, 150)


def test_says_by_how_much_the_budget_is_exceeded() -> None:
    assert [growth(tokens=tokens).over_tokens for tokens in (1_999, 2_000, 2_001)] == [0, 0, 1]


def test_less_than_three_days_tell_nothing_of_a_pace() -> None:
    assert growth(since=NOW - timedelta(days=3)).is_known
    assert not growth(since=NOW - timedelta(days=3) + MOMENT).is_known


def test_months_are_counted_from_any_of_their_days() -> None:
    for day, later, first in (
        *(("2026-11-23", 0, "2026-11-01"), ("2026-12-31", 1, "2027-01-01")),
        *(("2026-01-31", -1, "2025-12-01"), ("2026-11-30", -11, "2025-12-01")),
        *(("2026-12-01", -12, "2025-12-01"), ("2024-02-29", 24, "2026-02-01")),
    ):
        assert first_of_month(date.fromisoformat(day), later) == date.fromisoformat(first)


def test_cooldown_doubles_with_each_fruitless_session_up_to_a_week() -> None:
    for hours, sessions_without_effect, expected_hours in (
        *((24, 0, 24), (24, 1, 48), (24, 2, 96), (24, 3, 168), (24, 4, 168), (24, 10_000, 168)),
        *((1, 0, 1), (1, 1, 2), (1, 7, 128), (1, 8, 168), (6, 4, 96), (168, 0, 168), (168, 3, 168)),
    ):
        expected = timedelta(hours=expected_hours)
        assert cooldown(hours, sessions_without_effect) == expected, (
            hours,
            sessions_without_effect,
        )


def test_pauses_after_failures_grow_and_end_after_three_retries() -> None:
    pauses = [retry_pause(attempt) for attempt in (1, 2, 3, 4, 5, 100)]

    minutes = [pause and pause.total_seconds() / 60 for pause in pauses]
    assert minutes == [5, 30, 120, None, None, None]
