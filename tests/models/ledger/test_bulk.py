"""Many new memories at once."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.exc import DBAPIError

from refine.extensions import db
from refine.models import Agent, AgentMemory
from refine.models.ledger.ledger import ImportedMemory
from refine.models.ledger.memory import content_hash
from tests import factories
from tests.chains import verify_agent

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)

CANARY = "the canary sings"


def add(agent: Agent, **fields: object) -> AgentMemory:
    """Add a memory; return it as the database has it."""
    usual = {
        "content": CANARY,
        "memory_type": "core",
        "tags": [],
        "constitutional": False,
        "created_at": NOW,
        "spans_until": None,
        "discarded_at": None,
        "source": "mem0",
        "source_id": "7",
        "extra": None,
    }
    hashed = content_hash(CANARY, agent.data_key())
    agent.lock()
    agent.ledger.add_all(
        "memory_imported", [ImportedMemory(**usual | fields, content_hash=hashed)], at=NOW
    )
    db.session.commit()
    return db.session.scalars(db.select(AgentMemory).order_by(AgentMemory.id.desc())).first()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"extra": '{"colour": "yellow"}', "tags": ["audio", "voice"], "constitutional": True},
        {"memory_type": "journal", "discarded_at": NOW + timedelta(days=1)},
    ],
)
def test_a_new_one_is_as_if_it_was_added_alone(app, fields):
    agent = factories.agent()

    added = add(agent, **fields)

    alone = AgentMemory(agent=factories.agent(), content=CANARY)
    assert {name: getattr(added, name) for name in fields} == fields
    assert (added.content, added.token_estimate) == (CANARY, alone.token_estimate)
    assert added.content_hash == content_hash(CANARY, agent.data_key())
    assert (added.recorded_at, added.updated_at) == (NOW, NOW)
    assert added.is_genuine
    assert CANARY.encode() not in added.sealed_content
    assert verify_agent(agent).problem is None


def test_new_ones_count_in_the_agents_figures(app):
    agent = factories.agent("one")

    added = add(agent)

    assert agent.ledger.core_totals() == (2, 1 + added.token_estimate)
    assert factories.records(agent)[-1].data["mass_after"] == 1 + added.token_estimate


def test_a_failed_copy_quotes_no_row(app):
    agent = factories.agent()
    add(agent, source_id=CANARY)

    with pytest.raises(DBAPIError) as failed:
        add(agent, source_id=CANARY)

    assert "uq_agent_memories_source" in str(failed.value)
    assert CANARY not in str(failed.value)
    assert CANARY not in str(failed.value.orig)
