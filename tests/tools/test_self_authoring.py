import json

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from refine.extensions import db
from refine.models import Agent
from refine.prompts import default_prompt
from refine.tools import SelfAuthoringTool
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


# -- viewing ---------------------------------------------------------------------------------------


def test_view_shows_every_field_with_its_own_value_or_the_default_and_changes_nothing(
    tool, agent, subtests
):
    agent.refinement_prompt = "Gently."
    db.session.commit()
    before = sql.snapshot()
    defaults = {field: (default_prompt(field), True) for field in PROMPTS}

    for field, (value, is_default) in {
        **defaults,
        "refinement_prompt": ("Gently.", False),
        "refinement_threshold": (0.75, True),
        "name": ("Ada", False),
    }.items():
        with subtests.test(field=field):
            result = tool.execute(action="view", field=field, value="ignored")
            assert result == {
                "type": "config",
                "action": "view",
                "field": field,
                "value": value,
                "agent": "Ada",
                "is_default": is_default,
            }
            assert json.loads(json.dumps(result)) == result
            assert sql.snapshot() == before
            assert not db.session().in_transaction()


# -- updating --------------------------------------------------------------------------------------


def test_update_sets_a_field_and_commits(tool, agent, subtests):
    for field, value, after in [
        *((field, " Be kind. \n", "Be kind.") for field in PROMPTS),
        ("refinement_threshold", 0.9, 0.9),
        ("refinement_threshold", 1, 1.0),
        ("refinement_threshold", "0.8125", 0.8125),
        ("name", " Eve ", "Eve"),
    ]:
        with subtests.test(field=field, value=str(value)[:10]):
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


def test_a_name_that_quotes_a_memory_is_refused(tool, agent, subtests):
    factories.memory(agent, "Gina told me that she is ill.")
    factories.entry(agent, "Her dog is called Bella.")
    factories.memory(agent, "Wren, they call me.").discard()
    db.session.commit()

    for name in ("Gina told me", "dog-is-called", "They call me!"):
        with subtests.test(name=name):
            assert (
                "must not quote a memory"
                in refused(tool, action="update", field="name", value=name)["error"]
            )


def test_a_name_that_completes_a_quote_begun_by_the_last_one_is_refused(tool, agent):
    factories.memory(agent, "Gina told me that she is ill.")
    db.session.commit()

    for begun, end in (("Gina told", "me"), ("told me", "Gina")):
        assert tool.execute(action="update", field="name", value=begun)["type"] == "config"
        assert "must not quote" in refused(tool, action="update", field="name", value=end)["error"]
        assert tool.execute(action="update", field="name", value="Wren")["type"] == "config"


def test_an_agent_may_keep_or_drop_a_name_from_its_memories(app):
    agent = factories.agent("I am The Harbour Master of Wren.", name="The Harbour Master")
    db.session.commit()
    tool = SelfAuthoringTool(agent)

    for name in ("The Harbour Master", "Wren"):
        assert tool.execute(action="update", field="name", value=name)["value"] == name


def test_the_value_default_resets_a_field(tool, agent, subtests):
    for field in [*PROMPTS, "refinement_threshold"]:
        with subtests.test(field=field):
            tool.execute(action="update", field=field, value="0.5")
            result = tool.execute(action="update", field=field, value=" Default ")
            view = tool.execute(action="view", field=field)
            assert stored(agent, field) is None
            assert (result["value"], view["is_default"]) == (view["value"], True)
    assert "name" in refused(tool, action="update", field="name", value="default")["error"]


def test_an_update_is_recorded_with_its_values_sealed(tool, agent):
    tool.execute(action="update", field="system_prompt", value="The c4n4ry")

    (record,) = factories.records(agent)
    assert (record.action, record.user_id) == ("agent_settings_update", None)
    assert record.sealed == {"before": None, "after": "The c4n4ry"}
    assert "c4n4ry" not in str(record.data)


def test_an_invalid_value_is_refused_and_the_old_one_stays(tool, agent, subtests):
    tool.execute(action="update", field="refinement_threshold", value=0.9)
    no_threshold = "refinement_threshold must be a number above 0 and at most 1"
    thresholds = [0, 1.0001, "abc", True, [], 10**6000]
    for field, error, values in [
        *((field, "value required for update", [None, "", "  \n"]) for field in FIELDS),
        *((field, field, ["x" * 10_001, "\x00", 7, ["x"]]) for field in PROMPTS),
        ("name", "name", ["two\nlines", "x" * 81, 7]),
        ("refinement_threshold", no_threshold, thresholds),
    ]:
        for number, value in enumerate(values):
            with subtests.test(field=field, error=error, number=number):
                assert error in refused(tool, action="update", field=field, value=value)["error"]
    assert stored(agent, "refinement_threshold") == 0.9


def test_an_unknown_action_field_or_parameter_is_refused_with_the_allowed_ones(tool, subtests):
    for call, error in [
        ({}, "action is required"),
        ({"action": "delete", "field": "name"}, "Invalid action"),
        ({"action": "view"}, "field is required"),
        ({"action": "view", "field": "constitutional"}, "Invalid field"),
        ({"action": "update", "field": "core_token_budget", "value": 9}, "Invalid field"),
        ({"action": "update", "field": {}, "value": "x"}, "Invalid field"),
        ({"action": "view", "field": "name", "agent_id": 1}, "unknown parameter"),
        ({"action": "view", "field": "name", "self": 1}, "unknown parameter"),
    ]:
        with subtests.test(call=call):
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
def test_no_call_raises_and_an_error_changes_nothing(agent, action, field, value, more):
    before = sql.snapshot()

    result = SelfAuthoringTool(agent).execute(action=action, field=field, value=value, **more)

    assert json.loads(json.dumps(result))["type"] == result["type"]
    assert result["type"] == "config" or sql.snapshot() == before
