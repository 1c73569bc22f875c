"""Which model answers for an agent, as its runs tell."""

from datetime import timedelta
from typing import Any

import pytest
from flask import Flask

from refine import clock
from refine.extensions import db
from refine.models import Agent, RefinementSession
from refine.models.runs.answering import other_model_of
from tests import factories, sql

OTHER = "test/model-2"
AGO = timedelta(hours=1)


@pytest.fixture
def agent(app: Flask) -> Agent:
    return factories.agent("a core memory", model_id="test/model")


def answered(owner: Agent, by: str | None, ago: timedelta = AGO, calls: int = 1) -> None:
    """A session in which a model answered; None: the agent's own."""
    at = clock.now() - ago
    session = RefinementSession.queue(owner, "manual", at=at)
    session.claim(at)
    session.llm_calls, session.answered_model_id = calls, by
    session.finish("completed" if by is None else "failed", "so it ended", at=at)
    db.session.commit()


def test_the_model_that_answered_last_in_its_place_is_named(agent: Agent) -> None:
    before = other_model_of(agent)
    answered(agent, "test/model-1", ago=2 * AGO)
    answered(agent, OTHER)

    assert (before, other_model_of(agent)) == (None, OTHER)


def test_no_other_model_answers_once_its_own_has_answered_a_session(agent: Agent) -> None:
    answered(agent, OTHER, ago=2 * AGO)
    answered(agent, None)

    assert other_model_of(agent) is None


def test_no_other_model_answers_once_the_agent_has_another_model(agent: Agent) -> None:
    answered(agent, OTHER)

    agent.model_id = OTHER
    db.session.commit()

    assert other_model_of(agent) is None


@pytest.mark.parametrize(
    ("later", "is_withdrawn"),
    [
        ({}, True),
        ({"answered_model_id": OTHER}, False),
        ({"llm_calls": 0}, False),
        ({"model_id": "test/model-0"}, False),
        ({"started_at": clock.now() - 2 * AGO}, False),
    ],
    ids=["answered", "by another", "unanswered", "for another model", "before"],
)
def test_a_later_task_that_its_own_model_answered_withdraws_the_name(
    agent: Agent, later: dict[str, Any], is_withdrawn: bool
) -> None:
    answered(agent, OTHER)

    factories.ended_task(agent, **{"llm_calls": 1, **later})

    assert (other_model_of(agent) is None) == is_withdrawn


def test_tasks_alone_name_no_other_model(agent: Agent) -> None:
    factories.ended_task(agent, llm_calls=1, answered_model_id=OTHER)

    assert other_model_of(agent) is None


def test_a_session_that_was_changed_outside_the_application_names_no_model(
    app: Flask, agent: Agent
) -> None:
    answered(agent, OTHER)
    sql.tamper("UPDATE refinement_sessions SET answered_model_id = 'test/theirs'")

    with app.app_context():  # another transaction
        assert other_model_of(db.session.get_one(Agent, agent.id)) is None


@pytest.mark.parametrize("name", ["a model with an unreadable name", "ada@example.net"])
def test_a_name_that_cannot_be_set_is_not_named(agent: Agent, name: str) -> None:
    answered(agent, name)

    assert other_model_of(agent) is None
