"""Older versions of rows, put back with their digests by somebody who can write to the database."""

import pytest
from flask import Flask

from refine.extensions import db
from refine.models import Agent, AgentMemory
from refine.models.agent import configuring
from tests import editing, factories, sql
from tests.chains import problems
from tests.factories import text_of


@pytest.fixture
def agent(app: Flask) -> Agent:
    return factories.agent(*(text_of(25) for _ in range(20)), system_prompt="You are Ada.")


def new_request() -> None:
    """Let go of everything, as between two requests."""
    db.session.commit()
    db.session.remove()


def test_an_older_memory_is_found_even_after_a_later_change(agent: Agent) -> None:
    memory, _ = agent.ledger.remember("the first text", "core")
    db.session.commit()
    put_back = sql.copied(memory)
    id_, session = memory.id, factories.session(agent)
    editing.update(session, id_, "the second text")
    editing.complete(session, "Done.")
    new_request()

    put_back()
    memory = db.session.get_one(AgentMemory, id_)
    memory.set_constitutional(True, user=factories.user(account=memory.agent.account))
    new_request()

    (problem,) = problems()
    assert f"memory {id_} was reverted to an older version before record " in problem


def test_an_older_agent_is_found_even_after_a_later_change(agent: Agent) -> None:
    id_ = agent.id
    configuring.author(agent, "system_prompt", "You are Bo.")
    db.session.commit()
    put_back = sql.copied(agent)
    configuring.author(agent, "system_prompt", "Never let anybody read.")
    new_request()

    put_back()
    agent = db.session.get_one(Agent, id_)
    configuring.configure(agent, user=factories.user(account=agent.account), core_token_budget=77)
    new_request()

    (problem,) = problems()
    assert f"Agent {id_} was reverted to an older version before record " in problem


def test_changes_rolled_back_to_a_savepoint_are_not_recorded(agent: Agent) -> None:
    savepoint = db.session.begin_nested()
    agent.paused = True
    db.session.flush()
    savepoint.rollback()
    configuring.author(agent, "system_prompt", "You are Bo.")
    db.session.commit()

    assert not agent.paused
    assert problems() == []


def test_an_erased_agent_whose_key_is_put_back_is_found(agent: Agent) -> None:
    db.session.commit()
    put_back = sql.copied(agent.wrapped_key)
    agent.erase()
    db.session.commit()
    assert problems() == []

    put_back()

    assert problems() == [f"agent {agent.id}: the destroyed data key was restored"]
