"""How large and how old core memories are."""

from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask

from refine.models import Agent
from refine.models.ledger.profile import OLDEST_MONTHS, SIZES, Kept, profile
from tests import factories

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)


@pytest.fixture
def agent(app: Flask) -> Agent:
    return factories.agent()


def test_memories_are_counted_by_size(agent: Agent) -> None:
    factories.ledger(agent, 1, 25, 26, 100, 101, 400, 401, 2_500, created_at=NOW)

    sizes = profile(agent.id, NOW).sizes

    assert [each.unlocked for each in sizes] == [2, 1, 1, 1, 1, 2]
    assert len(sizes) == len(SIZES) + 1


def test_memories_are_counted_by_age_in_months(agent: Agent) -> None:
    month = timedelta(days=30)
    for age in (
        -month,
        timedelta(0),
        month - MOMENT,
        month,
        12 * month - MOMENT,
        12 * month,
        40 * month,
    ):
        factories.ledger(agent, 10, created_at=NOW - age)

    ages = profile(agent.id, NOW).ages

    assert [each.unlocked for each in ages] == [3, 1, *[0] * 9, 1, 2]
    assert len(ages) == OLDEST_MONTHS + 1


def test_locked_memories_are_counted_apart(agent: Agent) -> None:
    factories.ledger(agent, 10, 10, created_at=NOW)
    factories.ledger(agent, 10, created_at=NOW, constitutional=True)
    factories.ledger(agent, 30, created_at=NOW, tags=["voice"])

    counted = profile(agent.id, NOW)

    assert counted.sizes[:2] == [Kept(2, 1), Kept(0, 1)]
    assert counted.ages[0] == Kept(2, 2)


def test_only_the_agents_own_kept_core_memories_are_counted(agent: Agent) -> None:
    factories.ledger(agent, 10, memory_type="journal")
    factories.ledger(agent, 10)[0].discard()
    factories.agent("another's")

    assert {*profile(agent.id, NOW).sizes, *profile(agent.id, NOW).ages} == {Kept()}
