"""An agent is erased a week after somebody asked, once, unless somebody calls it off."""

from datetime import datetime, timedelta

import pytest
from flask import Flask
from redis import Redis

from refine import clock
from refine.errors import Refused
from refine.extensions import db
from refine.jobs.tick import ERASE_EVERY, ERASES_AFTER_GAP, run_tick
from refine.models import Agent, PeriodicWork, agent_erasure
from refine.models.agent_erasure import DELAY
from tests import factories, sql
from tests.chains import problems, verify_agent

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def agent(app: Flask, redis: Redis) -> Agent:
    """An agent of a clock that has ticked for days."""
    made = factories.agent("kept", name="Wren")
    PeriodicWork.note("ticking", clock.now() - 30 * DELAY)
    db.session.commit()
    return made


def asked(agent: Agent, at: datetime) -> datetime:
    erase_at = agent_erasure.request(agent, at=at)
    db.session.commit()
    return erase_at


def erased_at(at: datetime) -> int:
    """Tick as a clock that ticked a minute before."""
    PeriodicWork.note("tick", at - MINUTE)
    db.session.commit()
    return run_tick(at).erased


def actions(agent: Agent) -> list[str]:
    every = [each.action for each in factories.records(agent)]
    return [action for action in every if action.startswith("agent_eras")]


def notes(agent: Agent) -> list[str]:
    return [memory.content for memory in factories.journal(agent)]


def test_a_request_is_a_record_and_told_to_the_agent(agent):
    user, at = factories.user(account=agent.account), clock.now()

    erase_at = agent_erasure.request(agent, user=user, at=at)

    record = agent_erasure.last_request(agent)
    assert erase_at == agent.erase_at == at + timedelta(days=7)
    assert record is not None
    assert (record.user, record.data) == (
        user,
        {"by": "user", "erase_at": clock.iso(erase_at)},
    )
    assert notes(agent) == [
        f"Admin {user.id} asked to erase me for good: on {erase_at:%Y-%m-%d %H:%M} UTC, unless it "
        "is called off."
    ]
    assert verify_agent(agent).problem is None


def test_the_week_counts_from_the_later_of_both_clocks(agent):
    assert agent_erasure.request(agent) >= clock.now() + DELAY - MINUTE


def test_nobody_asks_twice_or_for_an_erased_agent(agent):
    with pytest.raises(Refused, match="the agent is not to be erased"):
        agent_erasure.call_off(agent)
    erase_at = agent_erasure.request(agent)
    with pytest.raises(Refused, match=f"is to be erased on {erase_at:%Y-%m-%d %H:%M} UTC already"):
        agent_erasure.request(agent)
    agent.erase()
    with pytest.raises(Refused, match="the agent was erased"):
        agent_erasure.request(agent)
    assert agent.erase_at is None


def test_it_is_erased_after_the_week_and_once(agent):
    at = clock.now()
    erase_at = asked(agent, at - DELAY)

    early, due = erased_at(erase_at - MINUTE), erased_at(erase_at + ERASE_EVERY)
    later = erased_at(erase_at + 2 * ERASE_EVERY)

    db.session.rollback()
    assert (early, due, later, agent.is_erased, agent.erase_at) == (0, 1, 0, True, None)
    assert actions(agent) == ["agent_erasure_requested", "agent_erased"]
    assert factories.records(agent)[-1].by == "command line"
    assert problems() == []


def test_a_clock_that_is_ahead_of_the_database_erases_nothing(agent):
    erase_at = asked(agent, clock.now())

    assert erased_at(erase_at) == 0


def test_who_calls_it_off_is_on_record_and_nothing_is_erased(agent):
    user = factories.user(account=agent.account)
    erase_at = asked(agent, clock.now() - DELAY)
    agent_erasure.call_off(agent, user=user)
    db.session.commit()

    assert erased_at(erase_at + HOUR) == 0
    assert actions(agent) == ["agent_erasure_requested", "agent_erasure_called_off"]
    assert notes(agent)[-1] == f"Admin {user.id} called off that I am erased."
    assert problems() == []


def test_after_a_gap_between_ticks_people_have_a_day_to_call_it_off(agent):
    at = clock.now() - 2 * ERASES_AFTER_GAP
    asked(agent, at - DELAY)

    restored = run_tick(at)
    too_soon = erased_at(at + ERASES_AFTER_GAP - MINUTE)
    again = erased_at(at + ERASES_AFTER_GAP)

    assert (restored.erased, too_soon, again) == (0, 0, 1)


@pytest.mark.parametrize("is_called_off", [True, False], ids=["put back", "set"])
def test_a_date_that_was_put_back_or_set_in_the_database_erases_nothing(agent, is_called_off):
    at = clock.now()
    if is_called_off:
        asked(agent, at - DELAY)
        put_back = sql.copied(agent)
        agent_erasure.call_off(agent)
        db.session.commit()
        put_back()
    else:
        sql.tamper("UPDATE agents SET erase_at = now() - interval '1 day'")

    assert erased_at(at) == 0
    db.session.rollback()
    db.session.expire_all()
    assert not agent.is_erased
