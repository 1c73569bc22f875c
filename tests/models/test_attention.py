"""Agents that need a person: why, in which order, and who put them aside."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, text

from refine.extensions import db
from refine.models import Agent, RefinementSession, attention
from refine.models.attention import (
    KINDS,
    cases,
    has_cause,
    number_put_aside,
    number_waiting,
    put_aside_now,
)
from refine.models.runs.session.session import ENDED, ERODED
from refine.models.runs.session.totals import Stuck
from tests import factories, sql

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOW = datetime.now(UTC)
LITERALLY = {"literal_binds": True}


@pytest.fixture
def account(app):
    return factories.account()


def over_budget(account, **fields):
    agent = factories.agent(account=account, core_token_budget=10, **fields)
    factories.ledger(agent, 20)
    return agent


def found():
    """The names of the agents by their cause, in order."""
    db.session.commit()
    return {group[0].cause: [case.agent.name for case in group] for group in cases(None)}


def numbers(account_id):
    return number_waiting(account_id), number_put_aside(account_id)


def acknowledge(*agents, until=None, at=None):
    user = factories.user(account=agents[0].account)
    done = attention.put_aside(agents, lambda agent: until, user=user, at=at or datetime.now(UTC))
    db.session.commit()
    return done


# -- why -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ENDED)
def test_an_agent_is_found_by_how_its_last_session_ended(account, status):
    factories.ended(factories.agent(account=account, name="Ada"), status)

    needs_it = status in KINDS
    assert found() == ({status: ["Ada"]} if needs_it else {})
    assert numbers(account.id) == (int(needs_it), 0)


def test_causes_come_worst_first_and_an_agent_only_under_its_worst(account):
    for name, error_kind in (("Ada", "timeout"), ("Bo", None), ("Cy", "timeout")):
        factories.ended(
            over_budget(account, name=name), "failed", error_kind=error_kind, at=NOW - HOUR
        )
    for status, name in (("declined", "Dee"), ("rolled_back", "Eve")):
        factories.ended(factories.agent(account=account, name=name), status)
    factories.ended(over_budget(account, name="Fay"), "completed")
    over_budget(account, name="Gus")
    given_up = factories.agent(account=account, name="Hal")
    factories.ended_task(given_up, status="failed", error_kind="timeout")
    factories.ended_task(given_up, status="failed", error_kind="timeout", at=NOW - 25 * HOUR)
    factories.ended(factories.agent(name="another account's"), "failed")

    db.session.commit()
    groups = cases(account.id)

    assert {group[0].cause: [case.agent.name for case in group] for group in groups} == {
        "failed:timeout": ["Ada", "Cy"],
        "failed": ["Bo"],
        "given_up": ["Hal"],
        "rolled_back": ["Eve"],
        "stuck": ["Fay"],
        "over_budget": ["Gus"],
        "declined": ["Dee"],
    }
    assert [group[0].cause for group in groups][:2] == ["failed:timeout", "failed"]
    assert [case.conversations for group in groups for case in group if case.conversations] == [1]
    assert numbers(account.id) == (8, 0)
    assert numbers(None) == (9, 0)


def test_of_many_the_worst_are_shown_and_all_are_counted(account, monkeypatch):
    monkeypatch.setattr(attention, "_SHOWN", 2)
    for tokens in (20, 40, 30):
        agent = factories.agent(account=account, name=str(tokens), core_token_budget=10)
        factories.ledger(agent, tokens)

    assert found() == {"over_budget": ["40", "30"]}
    ((worst, _),) = cases(None)
    assert worst.number == 3


def test_agents_are_matched_by_a_cause_or_any(account):
    timed_out, other, _ = (factories.agent("one", account=account) for _ in range(3))
    factories.ended(timed_out, "failed", error_kind="timeout")
    factories.ended(other, "failed")

    def matched(cause):
        ids = db.select(attention.Agent.id).where(has_cause(cause)).order_by(attention.Agent.id)
        return list(db.session.scalars(ids))

    assert matched("failed:timeout") == [timed_out.id]
    assert matched("failed") == [other.id]
    assert matched(None) == [timed_out.id, other.id]
    assert matched("nonsense") == []


def test_an_agent_over_its_budget_needs_nobody_while_a_session_is_live(account):
    agent = over_budget(account)
    RefinementSession.queue(agent, "manual")

    assert found() == {}


def test_a_case_says_why_no_session_can_be_asked_for(account):
    live, locked = (factories.agent("one", account=account, name=name) for name in "AB")
    factories.ended(live, "declined", at=NOW - HOUR)
    factories.ended(locked, "declined")
    for memory in db.session.scalars(locked.ledger.core()):
        memory.constitutional = True
    eroded = over_budget(account)
    factories.ended(eroded, "incomplete", removable_tokens=30, removed_tokens=30)
    db.session.commit()

    found_now = {case.agent.name: case.why_not for group in cases(None) for case in group}

    assert found_now == {
        "A": None,
        "B": "no core memory that a session may change",
        eroded.name: ERODED,
    }


# -- stuck above the budget ------------------------------------------------------------------------


def stuck(agent):
    db.session.commit()
    (group,) = cases(agent.account_id)
    return group[0].stuck


@pytest.fixture
def stuck_one(account):
    """An agent of 20 tokens and a budget of 10; its first session had an effect."""
    agent = over_budget(account)
    factories.ended(
        agent, "completed", at=AT - timedelta(days=9), removable_tokens=5, removed_tokens=5
    )
    return agent


def test_an_agent_is_stuck_by_the_sessions_since_the_last_one_with_an_effect(stuck_one):
    assert stuck(stuck_one) is None

    for days, status, stats in (
        (8, "rolled_back", {"refused_sure": 2, "refused_retiring": 1, "retired": 4}),
        (7, "declined", {}),
        (6, "completed", {"refused_doubtful": 1, "refused_second_reading": 3}),
    ):
        factories.ended(stuck_one, status, at=AT - timedelta(days=days), stats=stats)

    assert stuck(stuck_one) == Stuck(3, 7)


def test_a_session_that_was_not_answered_makes_nobody_stuck(stuck_one):
    factories.ended(stuck_one, "incomplete", at=AT - timedelta(days=2))
    factories.ended(stuck_one, "skipped", at=AT - timedelta(days=1))

    assert stuck(stuck_one) == Stuck(1, 0)


def test_a_session_that_ended_within_the_budget_leaves_nobody_stuck(stuck_one):
    stuck_one.core_token_budget = 20
    db.session.flush()
    factories.ended(stuck_one, "completed", at=AT)
    factories.ledger(stuck_one, 1)

    assert stuck(stuck_one) is None


# -- putting aside ---------------------------------------------------------------------------------


def test_an_acknowledged_session_comes_back_when_another_one_ends_so(account):
    agent = factories.agent("one", account=account, name="Ada")
    factories.ended(agent, "failed", at=NOW - HOUR)
    db.session.commit()

    assert acknowledge(agent) == {agent.id}
    assert (found(), numbers(None)) == ({}, (0, 1))
    assert acknowledge(agent) == set()

    factories.ended(agent, "failed", at=datetime.now(UTC))
    assert (found(), numbers(None)) == ({"failed": ["Ada"]}, (1, 0))


def test_a_session_that_was_live_when_its_agent_was_put_aside_is_news(account):
    agent = over_budget(account, name="Ada")
    db.session.commit()
    session = RefinementSession.queue(agent, "manual", at=NOW - HOUR)
    factories.ended_task(agent, status="failed", error_kind="timeout", at=NOW - HOUR)
    db.session.commit()
    acknowledge(agent)

    session.finish("failed", "so it ended")

    assert found() == {"failed": ["Ada"]}


def test_an_acknowledged_agent_comes_back_when_it_is_over_its_budget_again(account):
    agent = over_budget(account, name="Ada")
    db.session.commit()
    acknowledge(agent)

    factories.ledger(agent, 5)
    assert found() == {}

    agent.core_token_budget = 1_000
    db.session.commit()
    agent.core_token_budget = 10
    assert found() == {"over_budget": ["Ada"]}


def test_a_snoozed_agent_comes_back_at_its_time_and_not_before(account):
    agent = factories.agent("one", account=account, name="Ada")
    factories.ended(agent, "failed", at=NOW - HOUR)
    db.session.commit()
    acknowledge(agent, until=datetime.now(UTC) + HOUR)

    factories.ended(agent, "failed")
    assert (found(), numbers(None)) == ({}, (0, 1))

    sql.run("UPDATE put_aside SET until = now()")
    assert (found(), numbers(None)) == ({"failed": ["Ada"]}, (1, 0))


def test_it_is_known_and_recorded_who_put_an_agent_aside_and_until_when(account):
    agent, other = (factories.agent("one", account=account) for _ in range(2))
    factories.ended(agent, "failed", at=NOW - HOUR, error_kind="timeout")
    db.session.commit()
    until = datetime.now(UTC) + HOUR

    assert acknowledge(agent, other, until=until) == {agent.id}
    ((found_agent, aside, cause),) = db.session.execute(put_aside_now(account.id)).all()
    state = attention.state_of(agent)

    assert (found_agent, cause, aside.until) == (agent, "failed:timeout", until)
    assert (state.is_waiting, state.put_aside) == (False, aside)
    assert attention.state_of(other) is None
    record = factories.records(agent)[-1]
    assert (record.action, record.user) == ("attention_snoozed", aside.user)
    assert record.data == {"cause": "failed:timeout", "until": until.isoformat()}
    assert len(factories.records(other)) == 0


def test_an_agent_is_brought_back_only_if_it_is_put_aside(account):
    agent, open_one = (factories.agent("one", account=account, name=name) for name in "AB")
    for each in (agent, open_one):
        factories.ended(each, "failed", at=NOW - HOUR)
    db.session.commit()
    acknowledge(agent)
    user = factories.user(account=account)

    back = attention.take_back([agent, open_one], user=user, at=datetime.now(UTC))

    assert back == {agent.id}
    assert sorted(found()["failed"]) == ["A", "B"]
    actions = [record.action for record in factories.records(agent)][-2:]
    assert actions == ["attention_acknowledged", "attention_taken_back"]


def test_agents_that_need_a_person_are_found_by_indexes(app):
    asked = select(Agent.id).where(has_cause()).compile(db.engine, compile_kwargs=LITERALLY)
    db.session.execute(text("SET LOCAL enable_seqscan = off"))
    plan = "\n".join(db.session.scalars(text(f"EXPLAIN {asked}")))

    assert "BitmapOr" in plan
    assert "Seq Scan on agents" not in plan
