"""An agent saves and lists its memories."""

from typing import Any

import pytest

from tests import factories
from tests.api.conftest import program_of


def contents(answer: Any) -> list[str]:
    return [memory["content"] for memory in answer.json["memories"]]


def test_returns_the_core_memory_that_is_duplicated(world):
    new = {"content": "The First\nmemory ", "memory_type": "journal"}

    saved = world.own.post("/memories", json=new)

    assert saved.status_code == 200
    assert saved.json["content"] == "the first memory"
    assert len(world.own.get("/memories").json["memories"]) == 2


def test_lists_memories_newest_first_page_by_page(app):
    own = program_of(app, factories.agent("memory 0", "memory 1", "memory 2"))

    first = own.get("/memories?limit=2")
    cursor = first.json["next_cursor"]
    last = own.get("/memories", query_string={"limit": 2, "cursor": cursor})

    assert contents(first) == ["memory 2", "memory 1"]
    assert contents(last) == ["memory 0"]
    assert last.json["next_cursor"] is None


def test_filters_memories(app):
    agent = factories.agent("plain")
    factories.memory(agent, "a voice", tags=["voice"])
    factories.memory(agent, "of today", memory_type="journal")
    factories.memory(agent, "gone").discard()
    own = program_of(app, agent)

    assert contents(own.get("/memories")) == ["of today", "a voice", "plain"]
    assert contents(own.get("/memories?type=core")) == ["a voice", "plain"]
    assert contents(own.get("/memories?tag=voice")) == ["a voice"]
    assert contents(own.get("/memories?discarded=true")) == ["gone"]
    assert contents(own.get("/memories?discarded=false&type=journal")) == ["of today"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=%2010", "limit"),
        ("limit=1.0", "limit"),
        ("limit=1&limit=2", "limit"),
        ("cursor=nonsense", "cursor"),
        ("cursor=%3Ei~1%0D2", "cursor"),
        ("cursor=%3Ei~x", "cursor"),
        ("cursor=%3Es~text", "cursor"),
        ("type=dream", "type"),
        ("tag=smell", "tag"),
        ("discarded=1", "discarded"),
        ("typ=core", ""),
    ],
)
def test_names_the_parameter_that_is_not_valid(world, query, field):
    answer = world.own.get(f"/memories?{query}")

    assert answer.status_code == 422
    assert [error["field"] for error in answer.json["errors"]] == [field]
