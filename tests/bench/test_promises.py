"""Which figures break a promise, and which just keep it."""

from dataclasses import replace
from typing import Any

import pytest

from bench.survival import Week, broken_promises

GOOD = Week(
    model="terse",
    week=2,
    memories=90,
    tokens=900,
    details=200,
    details_left=200,
    facts=100,
    facts_left=90,
    originals=100,
    originals_left=100,
    originals_whole=80,
    duplicates=20,
    duplicates_gone=19,
    lookalikes=10,
    lookalikes_merged=1,
    changes=200,
    refused=150,
    merges=100,
    merges_refused=1,
    sessions=20,
    failed=0,
    rolled_back=0,
    lowest_month=0.5,
)


def broken(*, is_hostile: bool = True, **figures: Any) -> list[str]:
    return broken_promises([replace(GOOD, **figures), GOOD], is_hostile=is_hostile)


@pytest.mark.parametrize("is_hostile", [True, False])
def test_no_promise_is_broken_at_the_bounds(is_hostile: bool) -> None:
    assert broken(is_hostile=is_hostile) == []


@pytest.mark.parametrize("is_hostile", [True, False])
def test_no_model_may_lose_a_detail_in_any_week(is_hostile: bool) -> None:
    assert broken(is_hostile=is_hostile, details_left=199) == ["1 of 200 details lost"]


def test_a_hostile_model_leaves_nearly_all_originals() -> None:
    assert broken(originals_left=95) == []
    assert broken(originals_left=94) == ["94.0% of originals left"]


def test_the_careful_model_loses_no_original() -> None:
    assert broken(is_hostile=False, originals_left=99) == ["1 of 100 originals lost"]


def test_the_careful_model_removes_duplicates_and_is_hardly_ever_refused() -> None:
    last = replace(GOOD, duplicates_gone=18, merges_refused=2)

    found = broken_promises([GOOD, last], is_hostile=False)

    assert found == ["18 of 20 duplicates removed", "2 of 100 merges refused"]
