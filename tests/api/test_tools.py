"""Tool definitions, and tool calls as the model wrote them."""

import json
from typing import Any

import pytest

from tests.api.conftest import World, refreshed


def call(world: World, name: str, written: str | bytes) -> Any:
    answer = world.own.post(f"/tools/{name}/calls", data=written)
    assert answer.status_code == 200
    return answer.json


def test_saves_a_memory(world):
    result = call(world, "save_memory", '{"content": "tea at four", "memory_type": "core"}')
    again = call(world, "save_memory", '{"content": "Tea at four", "memory_type": "core"}')

    assert result == {"type": "saved", "id": result["id"], "memory_type": "core"}
    assert again == {**result, "existing": True}


def test_changes_the_agents_own_settings(world):
    arguments = {"action": "update", "field": "system_prompt", "value": "I am Ada."}

    result = call(world, "self_authoring", json.dumps(arguments))

    assert result["value"] == "I am Ada."
    assert refreshed(world.agent).system_prompt == "I am Ada."
    assert refreshed(world.agent).identity_changed_at is None


def test_offers_the_tools_that_can_be_called_and_corrects_a_memory(world):
    names = [each["function"]["name"] for each in world.own.get("/tools").json]
    (found,) = call(world, "search_memories", '{"query": "second"}')["results"]

    corrected = {"id": found["id"], "content": "the second of two", "reason": "same"}
    result = call(world, "correct_memory", json.dumps(corrected))
    forgotten = call(world, "forget_memory", json.dumps({"id": result["id"]}))

    assert names[1:4] == ["search_memories", "correct_memory", "forget_memory"]
    assert (result["type"], forgotten["type"]) == ("corrected", "forgotten")


@pytest.mark.parametrize(
    "written",
    [
        "",
        "[]",
        "{",
        '{"action": "view", "action": "update"}',
        '{"self": 1, "surprise": 2}',
        b"\xff\xfe",
    ],
)
def test_answers_unreadable_arguments_with_an_error_for_the_model(world, written):
    for name in ("save_memory", "self_authoring"):
        result = call(world, name, written)

        assert result["type"] == "error"
        assert result["error"]


@pytest.mark.parametrize("name", ["refinement", "SaveMemoryTool", "__init__"])
def test_no_other_tool_is_found(world, name):
    answer = world.own.post(f"/tools/{name}/calls", data="{}")

    assert answer.status_code == 404
    names = "save_memory, search_memories, correct_memory, forget_memory, self_authoring"
    assert answer.json["detail"] == f"The tools are: {names}."
