"""Bulk actions: done for the agents that a user chose, a batch at a time."""

from decimal import Decimal

import pytest
from flask import Flask
from redis import Redis

from refine.extensions import db
from refine.jobs.batches import Work, act_on
from refine.models import Account, Agent, RefinementSession, User
from refine.models.agent import configuring
from tests import factories, sql


@pytest.fixture
def account(app: Flask, redis: Redis) -> Account:
    return factories.account()


@pytest.fixture
def user(account: Account) -> User:
    return factories.user(account=account)


@pytest.fixture
def agents(account: Account) -> list[Agent]:
    made = [factories.agent("a memory", account=account) for _ in range(3)]
    db.session.commit()
    return made


def ids_of(agents: list[Agent]) -> list[int]:
    return [agent.id for agent in agents]


@pytest.mark.parametrize(
    ("work", "value", "field", "stored"),
    [
        ("pause", None, "paused", True),
        ("budget", "700", "core_token_budget", 700),
        ("threshold", "0.5", "refinement_threshold", Decimal("0.5")),
        ("threshold", None, "refinement_threshold", None),
    ],
)
def test_settings_are_changed_and_agents_with_them_are_skipped(
    user: User, agents: list[Agent], work: Work, value: str | None, field: str, stored: object
) -> None:
    agents[1].refinement_threshold = Decimal("0.9")
    configuring.configure(agents[2], user=user, **{field: stored})
    db.session.commit()
    same = [agent for agent in agents if getattr(agent, field) == stored]

    outcome = act_on(ids_of(agents), work, user, value)

    db.session.rollback()
    assert {getattr(agent, field) for agent in agents} == {stored}
    assert (outcome.done, dict(outcome.skipped)) == (
        3 - len(same),
        {"nothing to change": len(same)},
    )


def test_a_session_by_hand_is_refused_as_for_one_agent(user: User, agents: list[Agent]) -> None:
    agents[0].active = False
    live = factories.session(agents[1])
    db.session.commit()

    outcome = act_on(ids_of(agents), "refine", user)

    assert outcome.done == 1
    assert sorted(outcome.skipped) == [
        f"the agent already has a live session, running: {live.id}",
        "the agent is not active",
    ]
    queued = RefinementSession.live_of(agents[2])
    assert (queued.trigger, queued.user_id) == ("manual", user.id)


def test_who_may_not_act_changes_nothing(user: User, agents: list[Agent]) -> None:
    elsewhere = factories.agent("a memory")
    db.session.commit()

    outcome = act_on([elsewhere.id, agents[0].id], "pause", user)

    db.session.rollback()
    assert (outcome.done, outcome.skipped.total()) == (1, 1)
    assert [elsewhere.paused, agents[0].paused] == [False, True]


def test_an_altered_agent_keeps_no_other_from_being_changed(
    user: User, agents: list[Agent]
) -> None:
    sql.tamper(f"UPDATE agents SET model_id = 'evil/model' WHERE id = {agents[1].id}")
    db.session.expire_all()

    outcome = act_on(ids_of(agents), "pause", user)

    db.session.rollback()
    assert outcome.done == 2
    assert [agents[0].paused, agents[2].paused] == [True, True]
