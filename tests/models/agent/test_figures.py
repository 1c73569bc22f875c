"""The figures on an agent's row are those of its memories and sessions, whoever writes them."""

import pytest
from sqlalchemy import text

from refine.extensions import db
from refine.models import RefinementSession
from tests import factories


@pytest.fixture
def agent(app):
    agent = factories.agent()
    factories.ledger(agent, 10, 20, 30)
    return agent


def figures(agent):
    db.session.flush()
    db.session.refresh(agent)
    return agent.core_count, agent.core_tokens


def test_they_count_kept_core_memories(agent):
    factories.ledger(agent, 40, memory_type="journal")

    assert figures(agent) == (3, 60)


def test_they_follow_discards_and_restores(agent):
    memory = db.session.scalars(agent.ledger.core()).first()
    memory.discard()
    assert figures(agent) == (2, 50)
    memory.restore()
    assert figures(agent) == (3, 60)


def test_they_follow_rows_that_are_changed_by_hand(agent):
    db.session.execute(text("UPDATE agent_memories SET token_estimate = 1"))

    assert figures(agent) == (3, 3)


def test_each_change_of_a_memory_is_a_new_version_of_the_ledger(agent):
    figures(agent)
    before = agent.ledger_version
    db.session.execute(text("UPDATE agent_memories SET updated_at = now()"))
    db.session.refresh(agent)

    assert agent.ledger_version == before + 1


def test_they_tell_the_latest_session(agent):
    first = RefinementSession.queue(agent, "manual")
    first.finish("failed", "so it ended", error_kind="timeout")
    figures(agent)
    assert agent.last_session_id == first.id
    assert (agent.last_session_status, agent.last_session_error_kind) == ("failed", "timeout")

    second = RefinementSession.queue(agent, "manual")
    figures(agent)
    assert (agent.last_session_id, agent.last_session_status) == (second.id, "queued")
    assert agent.last_session_at == second.created_at
