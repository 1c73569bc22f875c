"""Many agents with their figures, in one query."""

from datetime import UTC, datetime, timedelta

import pytest

from refine.extensions import db
from refine.models import Agent, RefinementSession
from refine.models.agent_list import STATES, Totals, cases, in_order, is_in, listed_agents, totals
from refine.models.runs.session import ENDED, NEED_ATTENTION
from refine.models.runs.session.totals import Stuck
from tests import factories

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def account(app):
    return factories.account()


def listed(account, *conditions, order="name"):
    mine = Agent.account_id == account.id
    query = listed_agents(mine, *conditions).order_by(*in_order(order))
    db.session.flush()
    return db.session.execute(query).all()


def ended(agent, status, at=AT, error_kind=None, **fields):
    session = RefinementSession.queue(agent, "weekly", at=at)
    for name, value in fields.items():
        setattr(session, name, value)
    session.finish(status, "so it ended", error_kind=error_kind, at=at)
    return session


@pytest.mark.parametrize(("tokens", "is_over"), [(10, False), (11, True)])
def test_an_agent_at_its_budget_is_not_over_it(account, tokens, is_over):
    agent = factories.agent(account=account, core_token_budget=10)
    factories.ledger(agent, tokens)

    (row,) = listed(account)

    assert (agent.is_over_budget, row.over_budget) == (is_over, is_over)
    assert bool(listed(account, is_in("over_budget"))) is is_over


def one_in_each_state(account):
    ended(factories.agent("one", account=account), "failed", error_kind="worker_lost")
    ended(factories.agent("one", account=account), "failed", error_kind="timeout")
    ended(factories.agent("one", account=account), "rolled_back")
    ended(factories.agent("one", account=account), "declined")
    factories.session(factories.agent("one", account=account))
    factories.agent("one two three", account=account, core_token_budget=1)
    factories.agent("one two three", account=account, core_token_budget=1, active=False)
    factories.agent(account=account, paused=True)


def test_each_state_lists_its_agents(account):
    one_in_each_state(account)

    assert {state: len(listed(account, is_in(state))) for state in STATES} == {
        "over_budget": 1,
        "running": 1,
        "failed": 2,
        "lost": 1,
        "rolled_back": 1,
        "declined": 1,
        "never": 3,
        "paused": 1,
        "inactive": 1,
    }


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("name", ["a", "B", "c"]),
        ("tokens", ["c", "B", "a"]),
        ("share", ["B", "a", "c"]),
        ("last", ["a", "B", "c"]),
    ],
)
def test_agents_are_sorted(account, order, names):
    for name, tokens, budget in (("c", 30, 1000), ("B", 20, 20), ("a", 10, 100)):
        agent = factories.agent(account=account, name=name, core_token_budget=budget)
        factories.ledger(agent, tokens)
        if name != "c":
            ended(agent, "declined", AT if name == "a" else AT - timedelta(hours=1))

    assert [row.name for row in listed(account, order=order)] == names


def test_totals_are_of_the_matching_agents(account):
    for tokens, active in ((10, True), (50, True), (60, False)):
        agent = factories.agent(account=account, core_token_budget=40, active=active)
        factories.ledger(agent, tokens)
    factories.agent("another account's")

    assert totals(Agent.account_id == account.id) == Totals(3, 120, 1, of=3)
    assert totals(Agent.account_id == account.id, ~Agent.active) == Totals(1, 60, 0, of=3)
    assert totals(Agent.id == 0) == Totals(0, 0, 0, of=0)


def test_the_worst_are_listed_first_and_then_by_name(account):
    def made(name, status=None, **fields):
        agent = factories.agent("one two three", account=account, name=name, **fields)
        return ended(agent, status) if status is not None else None

    made("fine", "completed")
    made("also fine")
    made("declined", "declined")
    made("over", core_token_budget=1)
    made("inactive", core_token_budget=1, active=False)
    made("rolled back", "rolled_back", core_token_budget=1)
    made("seen", "failed").acknowledge(factories.user(account=account))
    made("failed", "failed")
    made("A failed one", "failed")

    assert [row.name for row in listed(account, order="worst")] == [
        *("A failed one", "failed", "rolled back", "over", "declined"),
        *("also fine", "fine", "inactive", "seen"),
    ]


# -- stuck above the budget ------------------------------------------------------------------------


def stuck(agent):
    db.session.flush()
    ((case,),) = [found for found in cases(agent.account_id).values() if found]
    return case.stuck


@pytest.fixture
def over_budget(account):
    """An agent of 20 tokens and a budget of 10; its first session had an effect."""
    agent = factories.agent(account=account, core_token_budget=10)
    factories.ledger(agent, 20)
    ended(agent, "completed", AT - timedelta(days=9), removable_tokens=5, removed_tokens=5)
    return agent


def test_an_agent_is_stuck_by_the_sessions_since_the_last_one_with_an_effect(over_budget):
    assert stuck(over_budget) is None

    for days, status, stats in (
        (8, "rolled_back", {"refused_sure": 2, "refused_retiring": 1, "retired": 4}),
        (7, "declined", {}),
        (6, "completed", {"refused_doubtful": 1, "refused_second_reading": 3}),
    ):
        ended(over_budget, status, AT - timedelta(days=days), stats=stats)
        over_budget.last_session_seen_at = AT

    assert stuck(over_budget) == Stuck(3, 7)


def test_a_session_that_was_not_answered_or_is_running_makes_nobody_stuck(over_budget):
    ended(over_budget, "skipped", AT - timedelta(days=3))
    ended(over_budget, "incomplete", AT - timedelta(days=2))
    RefinementSession.queue(over_budget, "weekly", at=AT)

    assert stuck(over_budget) == Stuck(1, 0)


def test_a_session_that_ended_within_the_budget_leaves_nobody_stuck(over_budget):
    over_budget.core_token_budget = 20
    db.session.flush()
    ended(over_budget, "completed", AT)
    factories.ledger(over_budget, 1)

    assert stuck(over_budget) is None


def found_as():
    return [kind for kind, found in cases(None).items() if found]


@pytest.mark.parametrize("status", ENDED)
def test_an_agent_is_found_if_its_last_session_needs_attention(account, status):
    session = ended(factories.agent(account=account), status)
    db.session.commit()

    assert session.needs_attention == (status in NEED_ATTENTION)
    assert found_as() == ([status] if session.needs_attention else [])


@pytest.mark.parametrize("status", NEED_ATTENTION)
def test_an_agent_is_not_found_once_its_last_session_was_acknowledged(account, status):
    session = ended(factories.agent(account=account), status)
    db.session.commit()

    session.acknowledge(factories.user(account=account))
    db.session.commit()

    assert not session.needs_attention
    assert found_as() == []
