import json

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from sqlalchemy.exc import DBAPIError

from refine.extensions import db
from refine.models import AgentMemory
from refine.tools import SaveMemoryTool
from tests import factories, sql
from tests.tools.arguments import JSON, NAMES


@pytest.fixture
def agent(app):
    agent = factories.agent("A canary sang")
    db.session.commit()
    return agent


@pytest.fixture
def tool(agent):
    return SaveMemoryTool(agent)


def refused(tool, **call):
    """The error of a call that must change nothing."""
    before = sql.snapshot()
    result = tool.execute(**call)
    assert result["type"] == "error"
    assert list(result) == ["type", "error"]
    assert json.loads(json.dumps(result)) == result
    assert sql.snapshot() == before
    assert not db.session().in_transaction()
    return result["error"]


@pytest.mark.parametrize("memory_type", ["core", "journal"])
@pytest.mark.parametrize("tags", [[], ["voice", "relational"], None])
def test_a_memory_is_saved_and_committed(tool, agent, memory_type, tags):
    result = tool.execute(content=" It rained. ", memory_type=memory_type, tags=tags)

    memory = db.session.get_one(AgentMemory, result["id"])
    assert result == {"type": "saved", "id": memory.id, "memory_type": memory_type}
    assert (memory.content, memory.memory_type, memory.tags) == (
        "It rained.",
        memory_type,
        tags or [],
    )
    assert memory.agent is agent
    assert sql.value("SELECT count(*) FROM agent_memories") == 2
    assert sql.value("SELECT action FROM audit_logs") == "memory_saved"


@pytest.mark.parametrize("memory_type", ["core", "journal"])
def test_saving_an_exact_duplicate_returns_the_existing_memory(tool, agent, memory_type):
    there = db.session.scalar(agent.ledger.core())
    db.session.commit()
    before = sql.snapshot()

    result = tool.execute(content="  a Canary\nsang\n", memory_type=memory_type)

    assert result == {"type": "saved", "id": there.id, "memory_type": "core", "existing": True}
    assert sql.snapshot() == before


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ({}, "content is required for save_memory"),
        ({"content": "x"}, "memory_type must be one of core, journal"),
        ({"memory_type": "core"}, "content is required for save_memory"),
        ({"content": "x" * 10_001, "memory_type": "core"}, "content has 10,001 characters"),
        ({"content": "\ud800", "memory_type": "core"}, "content must be valid Unicode"),
        ({"content": 7, "memory_type": "core"}, "content must be text"),
        ({"content": "x", "memory_type": "note"}, "memory_type must be one of"),
        ({"content": "x", "memory_type": "core", "tags": ["love"]}, "unknown tag"),
        ({"content": "x", "memory_type": "core", "tags": "voice"}, "tags must be a list"),
        (
            {"content": "x", "memory_type": "core", "constitutional": True},
            "unknown parameter; save_memory takes: content, memory_type, tags",
        ),
        ({"content": "x", "memory_type": "core", "self": 1}, "unknown parameter"),
    ],
)
def test_a_malformed_call_is_refused(tool, call, error):
    assert refused(tool, **call).startswith(error)


@settings(
    max_examples=75,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(params=st.dictionaries(st.sampled_from(["content", "memory_type", "tags"]) | NAMES, JSON))
def test_whatever_a_model_sends_the_worst_is_an_error_that_changes_nothing(agent, params):
    before = sql.snapshot()

    result = SaveMemoryTool(agent).execute(**params)

    assert json.loads(json.dumps(result))["type"] == result["type"]
    assert result["type"] == "saved" or sql.snapshot() == before


def test_nothing_is_saved_when_the_record_cannot_be_written(tool, broken_audit):
    broken_audit("memory_saved")
    before = sql.snapshot()

    with pytest.raises(DBAPIError, match="the disk is full"):
        tool.execute(content="It rained.", memory_type="core")
    db.session.commit()

    assert sql.snapshot() == before
