import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import DBAPIError

from refine.extensions import db
from refine.models import Agent
from refine.prompts import default_prompt
from refine.tools import SelfAuthoringTool
from refine.tools.self_authoring import DEFINITION
from tests import factories, sql
from tests.tools.arguments import JSON, NAMES

FIELDS = [
    "name",
    "system_prompt",
    "reflection_prompt",
    "memory_reflection_prompt",
    "refinement_prompt",
    "refinement_threshold",
]
PROMPTS = FIELDS[1:5]


@pytest.fixture
def agent(app):
    agent = factories.agent(name="Ada")
    db.session.commit()
    return agent


@pytest.fixture
def tool(agent):
    return SelfAuthoringTool(agent)


def refused(tool, **call):
    """The result of a call that must change nothing."""
    before = sql.snapshot()
    result = tool.execute(**call)
    assert result["type"] == "error"
    assert json.loads(json.dumps(result)) == result
    assert sql.snapshot() == before
    assert not db.session().in_transaction()
    return result


def stored(agent, field):
    db.session.expire_all()
    return getattr(db.session.get_one(Agent, agent.id), field)


def test_view_shows_a_field_of_the_agents_own(tool, agent):
    agent.refinement_prompt = "Gently."
    db.session.commit()

    result = tool.execute(action="view", field="refinement_prompt")

    assert result == {
        "type": "config",
        "action": "view",
        "field": "refinement_prompt",
        "value": "Gently.",
        "agent": "Ada",
        "is_default": False,
    }


@pytest.mark.parametrize("field", PROMPTS)
def test_view_shows_the_default_of_an_unset_prompt(tool, field):
    result = tool.execute(action="view", field=field)

    assert (result["value"], result["is_default"]) == (default_prompt(field), True)


def test_view_shows_the_default_threshold(tool):
    result = tool.execute(action="view", field="refinement_threshold")

    assert (result["value"], result["is_default"]) == (0.75, True)


def test_view_shows_the_name(tool):
    result = tool.execute(action="view", field="name")

    assert (result["value"], result["is_default"]) == ("Ada", False)


@pytest.mark.parametrize("field", FIELDS)
def test_view_changes_nothing_and_leaves_no_transaction_open(tool, field):
    before = sql.snapshot()

    result = tool.execute(action="view", field=field, value="ignored")

    assert json.loads(json.dumps(result)) == result
    assert sql.snapshot() == before
    assert not db.session().in_transaction()


@pytest.mark.parametrize(
    ("field", "value", "after"),
    [
        ("name", " Eve ", "Eve"),
        *((field, " Be kind. \n", "Be kind.") for field in PROMPTS),
        *((field, "x" * 10_000, "x" * 10_000) for field in PROMPTS),
        ("refinement_threshold", 0.9, 0.9),
        ("refinement_threshold", 1, 1.0),
        ("refinement_threshold", "0.8125", 0.8125),
        ("refinement_threshold", " .5 ", 0.5),
        ("refinement_threshold", 0.0001, 0.0001),
    ],
)
def test_update_sets_a_field_and_commits(tool, agent, field, value, after):
    result = tool.execute(action="update", field=field, value=value)

    assert result == {
        "type": "config",
        "action": "update",
        "field": field,
        "value": after,
        "agent": "Eve" if field == "name" else "Ada",
    }
    assert not db.session().in_transaction()
    assert stored(agent, field) == after


@pytest.mark.parametrize("word", ["default", " Default "])
@pytest.mark.parametrize("field", [*PROMPTS, "refinement_threshold"])
def test_the_value_default_sets_a_field_back(tool, agent, field, word):
    tool.execute(action="update", field=field, value="0.5")

    result = tool.execute(action="update", field=field, value=word)

    assert stored(agent, field) is None
    assert result["value"] == tool.execute(action="view", field=field)["value"]
    assert tool.execute(action="view", field=field)["is_default"] is True


def test_a_name_has_no_default(tool):
    assert "name" in refused(tool, action="update", field="name", value="default")["error"]


def test_an_update_is_recorded_without_its_words(tool, agent):
    tool.execute(action="update", field="system_prompt", value="The c4n4ry")

    (record,) = factories.records(agent)
    assert (record.action, record.user_id) == ("agent_settings_update", None)
    assert record.sealed == {"before": None, "after": "The c4n4ry"}
    assert "c4n4ry" not in str(record.data)


def test_an_update_to_what_stands_is_not_recorded(tool, agent):
    tool.execute(action="update", field="refinement_threshold", value=0.9)

    tool.execute(action="update", field="refinement_threshold", value="0.90")

    assert len(factories.records(agent)) == 1


@pytest.mark.parametrize("value", [None, "", "  \n"])
@pytest.mark.parametrize("field", FIELDS)
def test_an_update_needs_a_value(tool, field, value):
    result = refused(tool, action="update", field=field, value=value)

    assert result == {"type": "error", "error": "value required for update"}


@pytest.mark.parametrize(
    "value",
    [0, 0.0, -0.5, 1.0001, 2, 0.12345, "0", "abc", "75%", "1e-1", "0,9", True, False, [], {}, 1e999]
    + [pytest.param(10**6000, id="huge"), "٠.٥"],
)
def test_a_threshold_that_is_no_share_is_an_error_and_never_stored(tool, agent, value):
    tool.execute(action="update", field="refinement_threshold", value=0.9)

    result = refused(tool, action="update", field="refinement_threshold", value=value)

    assert "refinement_threshold must be a number above 0 and at most 1" in result["error"]
    assert stored(agent, "refinement_threshold") == 0.9


@pytest.mark.parametrize("value", ["x" * 10_001, "\x00", "\ud800", 7, True, ["x"], {}])
@pytest.mark.parametrize("field", PROMPTS)
def test_a_bad_prompt_is_an_error(tool, field, value):
    assert field in refused(tool, action="update", field=field, value=value)["error"]


@pytest.mark.parametrize("value", ["two\nlines", "x" * 201, 7, True, "a\x1bb"])
def test_a_bad_name_is_an_error(tool, value):
    assert "name" in refused(tool, action="update", field="name", value=value)["error"]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ({}, "action is required"),
        ({"action": "delete", "field": "name"}, "Invalid action"),
        ({"action": ["view"], "field": "name"}, "Invalid action"),
        ({"action": "view"}, "field is required"),
        ({"action": "view", "field": "constitutional"}, "Invalid field"),
        ({"action": "update", "field": "core_token_budget", "value": 9}, "Invalid field"),
        ({"action": "update", "field": "model_id", "value": "x"}, "Invalid field"),
        ({"action": "update", "field": {}, "value": "x"}, "Invalid field"),
        ({"action": "view", "field": "name", "agent_id": 1}, "unknown parameter"),
        ({"action": "view", "field": "name", "self": 1}, "unknown parameter"),
    ],
)
def test_an_unknown_field_action_or_parameter_is_refused_with_the_allowed_ones(tool, call, error):
    result = refused(tool, **call)

    assert result["error"].startswith(error)
    assert result["allowed_actions"] == ["view", "update"]
    assert result["allowed_fields"] == FIELDS


@settings(
    max_examples=75,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    action=st.sampled_from(["view", "update"]) | JSON,
    field=st.sampled_from(FIELDS) | JSON,
    value=JSON,
    more=st.dictionaries(NAMES, JSON, max_size=1),
)
def test_whatever_a_model_sends_the_worst_is_an_error_that_changes_nothing(
    agent, action, field, value, more
):
    before = sql.snapshot()

    result = SelfAuthoringTool(agent).execute(action=action, field=field, value=value, **more)

    assert json.loads(json.dumps(result))["type"] == result["type"]
    assert result["type"] == "config" or sql.snapshot() == before


def test_where_the_record_fails_nothing_is_set(tool, agent, broken_audit):
    broken_audit("agent_settings_update")
    before = sql.snapshot()

    with pytest.raises(DBAPIError, match="the disk is full"):
        tool.execute(action="update", field="system_prompt", value="new")
    db.session.commit()

    assert sql.snapshot() == before
    assert agent.system_prompt is None


def test_the_definition_is_json_and_names_the_fields():
    properties = DEFINITION["function"]["parameters"]["properties"]

    assert properties["field"]["enum"] == FIELDS
    assert json.loads(json.dumps(DEFINITION)) == DEFINITION
