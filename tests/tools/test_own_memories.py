"""The tools ``search_memories``, ``correct_memory`` and ``forget_memory``."""

import json
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from refine import clock
from refine.extensions import db
from refine.models import AgentMemory
from refine.tools import OwnMemoriesTool
from tests import factories, sql
from tests.tools.arguments import JSON, NAMES

SEARCH, CORRECT, FORGET = "search_memories", "correct_memory", "forget_memory"


@pytest.fixture
def agent(app):
    agent = factories.agent()
    factories.ledger(agent, *[25] * 4, recorded_at=clock.now() - timedelta(days=2))
    factories.memory(agent, "The canary sings", tags=["relational"])
    factories.entry(agent, "a canary sang on Monday")
    factories.memory(agent, "My canary is a note", memory_type="journal", source="note")
    db.session.commit()
    return agent


def found(agent, **call):
    result = OwnMemoriesTool(SEARCH, agent).execute(**call)
    assert result["type"] == "search_results"
    assert result["count"] == len(result["results"])
    return [entry["content"] for entry in result["results"]]


def refused(agent, tool, **call):
    """The error of a call that must change nothing."""
    before = sql.snapshot()
    result = OwnMemoriesTool(tool, agent).execute(**call)
    assert list(result) == ["type", "error"]
    assert sql.snapshot() == before
    return result["error"]


def test_what_is_kept_is_found_in_any_case_with_its_type(agent):
    result = OwnMemoriesTool(SEARCH, agent).execute(
        query="CANARY", after="", before="", retired=False
    )

    assert [(each["content"], each["memory_type"]) for each in result["results"]] == [
        ("a canary sang on Monday", "journal"),
        ("The canary sings", "core"),
    ]
    assert result["query"] == "CANARY"


def test_dates_narrow_a_search_and_a_call_without_words_finds_all(agent):
    assert found(agent, query="canary", after="2999-01-01") == []
    assert found(agent, query="sings", before="2999-01-01") == ["The canary sings"]
    assert len(found(agent)) == 6


def test_at_most_twenty_are_shown_and_all_are_counted(agent):
    for number in range(25):
        factories.memory(agent, f"a finch {number}")
    result = OwnMemoriesTool(SEARCH, agent).execute(query="finch")

    assert (result["count"], len(result["results"])) == (25, 20)


def test_a_correction_is_committed_and_the_old_text_is_found_as_retired(agent):
    (entry,) = OwnMemoriesTool(SEARCH, agent).execute(query="sings")["results"]

    result = OwnMemoriesTool(CORRECT, agent).execute(
        id=f"#{entry['id']}", content="The canary hums", reason="wrong"
    )

    assert result == {
        "type": "corrected",
        "id": result["id"],
        "replaced": entry["id"],
        "content": "The canary hums",
    }
    db.session.rollback()
    assert db.session.get_one(AgentMemory, result["id"]).tags == ["relational"]
    (retired,) = OwnMemoriesTool(SEARCH, agent).execute(query="canary", retired=True)["results"]
    assert (retired["retired"], retired["replaced_by"]) == ("wrong", result["id"])


@pytest.mark.parametrize(
    ("given_reason", "reason"), [({}, "outdated"), ({"reason": "wrong"}, "wrong")]
)
def test_what_is_forgotten_is_out_of_the_context(agent, given_reason, reason):
    (entry,) = OwnMemoriesTool(SEARCH, agent).execute(query="sings")["results"]

    result = OwnMemoriesTool(FORGET, agent).execute(id=entry["id"], **given_reason)

    assert result == {"type": "forgotten", "id": entry["id"]}
    assert "sings" not in agent.memory_context()
    assert db.session.get_one(AgentMemory, entry["id"]).retired_reason == reason


@pytest.mark.parametrize(
    ("tool", "call", "error"),
    [
        (SEARCH, {"after": "soon"}, "after must be an ISO date"),
        (SEARCH, {"retired": "yes"}, "retired must be true or false"),
        (SEARCH, {"query": "x" * 501}, "query"),
        (SEARCH, {"tag": "voice"}, "search_memories takes: query, after, before"),
        (CORRECT, {"content": "new"}, "id is required for correct_memory"),
        (CORRECT, {"id": 1, "content": " "}, "content is required for correct_memory"),
        (CORRECT, {"id": 1, "content": 7}, "content must be text"),
        (CORRECT, {"id": "x", "content": "new"}, "invalid memory id"),
        (FORGET, {}, "id is required for forget_memory"),
        (FORGET, {"id": 1, "reason": "old"}, "reason must be one of: same, outdated"),
        (FORGET, {"id": 10**15}, f"Memory #{10**15} not found"),
    ],
)
def test_a_call_that_cannot_be_carried_out_says_why(agent, tool, call, error):
    assert error in refused(agent, tool, **call)


def test_the_breaker_by_day_is_an_error_of_the_tool(agent):
    entry = factories.memory(agent, "x" * 400, recorded_at=clock.now() - timedelta(days=2))
    db.session.commit()

    assert "at most" in refused(agent, FORGET, id=entry.id)


@given(
    tool=st.sampled_from([SEARCH, CORRECT, FORGET]),
    params=st.dictionaries(
        st.sampled_from(["id", "content", "reason", "query", "after", "retired"]) | NAMES,
        JSON,
        max_size=4,
    ),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_call_raises_and_an_error_changes_nothing(agent, tool, params):
    before = sql.snapshot()

    result = OwnMemoriesTool(tool, agent).execute(**params)

    assert json.loads(json.dumps(result))["type"] == result["type"]
    assert result["type"] != "error" or sql.snapshot() == before
