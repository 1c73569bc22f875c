"""The tools of a reflection and an extraction: what a model may call, and what it is told."""

import json
import uuid

import pytest
from flask import Flask
from hypothesis import HealthCheck, given, settings

from refine.extensions import db
from refine.models import AgentMemory, LeaseLost, MemoryTask
from refine.outages import RetryPolicy
from refine.tools import PromoteTool, SaveToJournalTool
from tests import factories, sql
from tests.outages import answers_lost
from tests.tools.arguments import JSON


@pytest.fixture
def entry(app: Flask) -> AgentMemory:
    owner = factories.agent("A canary sang")
    return factories.entry(owner, "It rained.")


@pytest.fixture
def promoting(entry: AgentMemory) -> PromoteTool:
    return tool_of(PromoteTool, MemoryTask.reflect(entry.agent, "daily"))


@pytest.fixture
def saving(entry: AgentMemory) -> SaveToJournalTool:
    return tool_of(SaveToJournalTool, factories.extraction(entry.agent))


def tool_of(kind, task, *more):
    tool = kind(task.id, task.claim(), *more)
    db.session.commit()
    return tool


def refused(tool, **call):
    """The error of a call that must change nothing."""
    before = sql.snapshot()
    result = tool.execute(**call)
    assert list(result) == ["type", "error"]
    assert result["type"] == "error"
    assert sql.snapshot() == before
    assert not db.session().in_transaction()
    return result["error"]


def test_a_lost_answer_to_the_commit_saves_once(entry):
    tool = tool_of(SaveToJournalTool, factories.extraction(entry.agent), RetryPolicy())

    with answers_lost():
        result = tool.execute(content="It rained again.")

    assert result["type"] == "saved"
    assert [each.content for each in factories.journal(entry.agent)].count("It rained again.") == 1


def test_an_id_is_read_as_models_write_it(promoting, entry):
    id_ = entry.id
    db.session.commit()

    result = promoting.execute(ids=f"#{id_}")

    assert result == {"type": "promoted", "ids": [id_]}
    assert sql.value(f"SELECT memory_type FROM agent_memories WHERE id = {id_}") == "core"


def test_a_duplicate_is_named_with_the_memory_that_it_repeats(promoting, entry):
    same = factories.memory(entry.agent, "it Rained.")
    db.session.commit()

    result = promoting.execute(ids=[entry.id])

    existing = [{"id": entry.id, "kept_as": same.id}]
    assert result == {"type": "promoted", "ids": [], "existing": existing}


def test_promoting_needs_ids_and_nothing_else(promoting):
    assert refused(promoting) == "ids is required for promote"
    assert refused(promoting, ids=[1], force=True) == "unknown parameter; promote takes: ids"


def test_an_entry_that_does_not_exist_or_is_another_agents_is_refused(promoting):
    theirs = factories.entry(factories.agent(), "somebody else's").id
    db.session.commit()

    for id_ in (10**6, theirs):
        assert refused(promoting, ids=[id_]).startswith(f"Memory #{id_} not found")


@pytest.mark.parametrize("memory_type", ["journal", None])
def test_a_journal_memory_is_saved(saving, memory_type):
    result = saving.execute(content="It snowed.", memory_type=memory_type, tags=["voice"])

    memory = db.session.get_one(AgentMemory, result["id"])
    assert result == {"type": "saved", "id": memory.id, "memory_type": "journal"}
    assert (memory.memory_type, memory.tags) == ("journal", ["voice"])


def test_an_existing_memory_is_named(saving, entry):
    result = saving.execute(content="it rained.")

    assert result == {
        "type": "saved",
        "id": entry.id,
        "memory_type": "journal",
        "existing": True,
    }


@pytest.mark.parametrize("memory_type", ["core", 7])
def test_no_other_type_is_saved(saving, memory_type):
    said = refused(saving, content="It snowed.", memory_type=memory_type)

    assert said.startswith("memory_type must be journal")


def test_a_call_without_content_is_an_error(saving):
    assert refused(saving) == "content is required for save_memory"


@pytest.mark.parametrize("is_reflection", [False, True])
def test_a_late_call_changes_nothing(app, is_reflection):
    agent = factories.agent()
    if is_reflection:
        tool, call = tool_of(PromoteTool, MemoryTask.reflect(agent, "daily")), {"ids": [1]}
    else:
        tool = tool_of(SaveToJournalTool, factories.extraction(agent))
        call = {"content": "late"}
    tool._lease_token = uuid.uuid4()
    before = sql.snapshot()

    with pytest.raises(LeaseLost):
        tool.execute(**call)

    assert sql.snapshot() == before


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(JSON)
def test_whatever_a_model_sends_is_answered(promoting, saving_of_another, anything):
    assert promoting.execute(ids=anything)["type"] in ("error", "promoted")
    result = saving_of_another.execute(content=anything, memory_type=anything, tags=anything)
    assert json.dumps(result)


@pytest.fixture
def saving_of_another(app: Flask) -> SaveToJournalTool:
    return tool_of(SaveToJournalTool, factories.extraction(factories.agent()))
