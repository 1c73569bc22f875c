"""A batch is one transaction; one that fails is served in parts, and costs nobody else a turn.

A user who chose agents changes them so, a batch at a time.
"""

from collections.abc import Sequence

import pytest
from flask import Flask
from redis import Redis
from sqlalchemy import select, text
from sqlalchemy.exc import OperationalError

from refine import create_app
from refine.errors import Refused
from refine.extensions import db
from refine.jobs.batches import Failed, act_on, in_parts, safe_message
from refine.models import Account, Agent, RefinementSession, User
from refine.settings import Settings
from tests import factories
from tests.commands import UNUSED_PORT


@pytest.fixture
def ids(app: Flask) -> list[int]:
    agents = [factories.agent() for _ in range(5)]
    db.session.commit()
    return [agent.id for agent in agents]


def paused() -> list[int]:
    db.session.rollback()
    return list(db.session.scalars(db.select(Agent.id).where(Agent.paused).order_by(Agent.id)))


def pause(ids: Sequence[int]) -> list[int]:
    for id_ in ids:
        db.session.get_one(Agent, id_).paused = True
    db.session.flush()
    return list(ids)


def test_a_batch_is_served_and_committed_at_once(ids):
    assert list(in_parts(ids, pause)) == [ids]
    assert paused() == ids


def test_a_batch_that_fails_is_undone_and_served_in_parts(ids):
    def refuse_one(some: Sequence[int]) -> list[int]:
        pause(some)
        if ids[3] in some:
            raise Refused("not this one")
        return list(some)

    outcomes = list(in_parts(ids, refuse_one))

    failed = [each for each in outcomes if isinstance(each, Failed)]
    assert [(each.agent_id, safe_message(each.fault)) for each in failed] == [
        (ids[3], "not this one")
    ]
    assert paused() == [*ids[:3], ids[4]]
    assert [each for each in outcomes if each not in failed] == [ids[:2], [ids[2]], [ids[4]]]


@pytest.mark.parametrize(("cuts", "served"), [(1, 1), (2, 0)])
def test_an_agent_is_served_once_more_after_the_connection_was_cut(ids, cuts, served):
    asked = []

    def lose_the_connection(some: Sequence[int]) -> list[int]:
        asked.append(some)
        pause(some)
        if len(asked) <= cuts:
            db.session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
        return list(some)

    outcomes = list(in_parts(ids[:1], lose_the_connection))

    assert len(asked) == 2
    assert outcomes.count(ids[:1]) == len(paused()) == served


def test_names_only_the_class_of_a_fault_that_may_quote_content():
    assert safe_message(ValueError("a memory")) == "ValueError"


def test_without_the_database_nobody_else_is_tried(environ):
    away = {**environ, "DATABASE_URL": f"postgresql://127.0.0.1:{UNUSED_PORT}/refine"}
    asked = []

    def ask(some: Sequence[int]) -> None:
        asked.append(some)
        db.session.execute(select(1))

    with create_app(Settings.from_environ(away)).app_context():
        with pytest.raises(OperationalError):
            list(in_parts([1, 2, 3], ask))
        db.session.remove()

    assert asked == [[1, 2, 3]]


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


def test_a_session_by_hand_is_refused_as_for_one_agent(user, agents):
    agents[0].active = False
    factories.session(agents[1])
    db.session.commit()

    outcome = act_on(ids_of(agents), "refine", user)

    assert outcome.done == 1
    assert sorted(outcome.skipped) == ["a session is waiting or running", "the agent is not active"]
    queued = RefinementSession.live_of(agents[2])
    assert (queued.trigger, queued.user_id) == ("manual", user.id)


def test_a_user_who_may_not_act_changes_nothing(user, agents):
    elsewhere = factories.agent("a memory")
    db.session.commit()

    outcome = act_on([elsewhere.id, agents[0].id], "pause", user)

    db.session.rollback()
    assert (outcome.done, outcome.skipped.total()) == (1, 1)
    assert [elsewhere.paused, agents[0].paused] == [False, True]
