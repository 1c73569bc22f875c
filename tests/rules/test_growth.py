"""How fast a ledger grows."""

from datetime import UTC, datetime, timedelta
from typing import Any

from refine.rules.growth import Growth

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


def test_less_than_three_days_show_no_pace() -> None:
    assert growth(since=NOW - timedelta(days=3)).is_known
    assert not growth(since=NOW - timedelta(days=3) + MOMENT).is_known
