"""How fast a ledger grows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from refine.rules.forecast import Growth

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)


def growth(**fields: Any) -> Growth:
    usual = {"tokens_before": 1_000, "tokens": 1_000, "removed_tokens": 0, "budget": 2_000}
    return Growth(**{"since": NOW - timedelta(days=14), "until": NOW, **usual, **fields})


def test_tokens_that_sessions_removed_had_been_saved_before() -> None:
    grown = growth(tokens=1_200, removed_tokens=300)

    assert (grown.saved_a_week, grown.removed_a_week) == (250, 150)


def test_it_will_be_over_its_budget_on_the_day_when_the_pace_leads_there() -> None:
    # 100 tokens in two weeks; one of 1,000 is missing to be over 1,999
    grown = growth(tokens_before=899, tokens=999, budget=1_998)

    assert grown.over_at == NOW + timedelta(weeks=20)


@pytest.mark.parametrize("tokens_before", [1_000, 1_200])
def test_a_ledger_that_does_not_grow_will_not_be_over(tokens_before: int) -> None:
    assert growth(tokens_before=tokens_before).over_at is None


def test_nothing_is_foreseen_for_more_than_two_years() -> None:
    assert growth(tokens=1_001, tokens_before=1_000, budget=1_052).over_at is not None
    assert growth(tokens=1_001, tokens_before=1_000, budget=1_053).over_at is None


def test_gives_no_date_if_the_budget_is_already_exceeded() -> None:
    assert growth(tokens=2_000).over_tokens == 0
    assert growth(tokens=2_001).over_tokens == 1
    assert growth(tokens=2_001).over_at is None


def test_less_than_three_days_tell_nothing_of_a_pace() -> None:
    assert growth(since=NOW - timedelta(days=3)).is_known
    assert not growth(since=NOW - timedelta(days=3) + MOMENT).is_known
