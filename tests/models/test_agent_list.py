"""Many agents with their figures, in one query."""

from datetime import UTC, datetime, timedelta

import pytest

from refine.extensions import db
from refine.models import Agent, RefinementSession
from refine.models.agent_list import STATES, Totals, in_order, is_in, listed_agents, totals
from refine.models.attention import put_aside
from tests import factories

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def account(app):
    return factories.account()


def listed(account, *conditions, order="name"):
    mine = Agent.account_id == account.id
    query = listed_agents(mine, *conditions).order_by(*in_order(order))
    db.session.flush()
    return db.session.scalars(query.execution_options(populate_existing=True)).all()


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
    seen = made("seen", "failed")
    put_aside(
        [seen.agent], lambda agent: None, user=factories.user(account=account), at=seen.ended_at
    )
    made("failed", "failed")
    made("A failed one", "failed")

    assert [row.name for row in listed(account, order="worst")] == [
        *("A failed one", "failed", "rolled back", "over", "declined"),
        *("also fine", "fine", "inactive", "seen"),
    ]
