"""An agent reads, corrects, forgets and erases one of its memories."""

from datetime import timedelta
from typing import Any

import pytest
from flask import Flask

from refine import clock
from refine.extensions import db
from refine.models import Agent
from tests import factories
from tests.api.conftest import Program, program_of
from tests.api.test_memories import contents
from tests.chains import problems

DAY = timedelta(days=1)


@pytest.fixture
def agent(app: Flask) -> Agent:
    agent = factories.agent()
    factories.ledger(agent, *[25] * 6, recorded_at=clock.now() - timedelta(days=2))
    return agent


@pytest.fixture
def own(app: Flask, agent: Agent) -> Program:
    return program_of(app, agent)


def saved(own: Program, content: str = "Mira's number is 555 0142") -> dict[str, Any]:
    answer = own.post("/memories", json={"content": content, "memory_type": "core"})
    saved: dict[str, Any] = answer.json
    return saved


def test_finds_memories_by_a_part_of_their_text_page_by_page(own):
    for number in range(3):
        saved(own, f"the Canary sings {number}")

    first = own.get("/memories?query=canary&limit=2")
    cursor = {"query": "canary", "limit": 2, "cursor": first.json["next_cursor"]}

    assert contents(first) == ["the Canary sings 2", "the Canary sings 1"]
    assert contents(own.get("/memories", query_string=cursor)) == ["the Canary sings 0"]
    assert contents(own.get("/memories?query=finch")) == []


def test_shows_a_memory_with_its_history(own):
    memory = saved(own)
    own.delete(f"/memories/{memory['id']}")

    shown = own.get(f"/memories/{memory['id']}").json

    assert (shown["content"], shown["retired_reason"]) == (memory["content"], "outdated")
    assert [(each["action"], each["content"], each["discarded"]) for each in shown["history"]] == [
        ("memory_forgotten", memory["content"], True),
        ("memory_saved", memory["content"], False),
    ]


def test_corrects_a_memory_and_lists_the_old_one_as_retired(own):
    memory = saved(own)

    new = own.patch(f"/memories/{memory['id']}", json={"content": "Mira's number is 555 0143"})

    assert new.status_code == 200
    assert new.json["content"] == "Mira's number is 555 0143"
    (old,) = own.get("/memories?retired=true&query=number").json["memories"]
    assert (old["retired_reason"], old["replaced_by_id"]) == ("wrong", new.json["id"])
    assert contents(own.get("/memories?query=number")) == ["Mira's number is 555 0143"]


def test_forgets_a_memory_for_the_given_reason(own):
    id_ = saved(own)["id"]

    answer = own.delete(f"/memories/{id_}?reason=wrong")

    assert answer.json == {"status": "forgotten", "ids": [id_], "descendants": [], "from_at": None}
    assert own.get(f"/memories/{id_}").json["retired_reason"] == "wrong"
    assert own.delete(f"/memories/{id_}").status_code == 404


def test_erases_a_memory_that_is_asked_for_twice_a_day_apart(own, agent):
    old = saved(own)["id"]
    new = own.patch(f"/memories/{old}", json={"content": "Mira's number is 555 0143"}).json["id"]

    first = own.delete(f"/memories/{old}?for_good=true")
    too_soon = own.delete(f"/memories/{old}?for_good=true")
    with clock.ahead(DAY + timedelta(minutes=1)):
        done = own.delete(f"/memories/{old}?for_good=true")

    assert (first.status_code, too_soon.status_code, done.status_code) == (202, 409, 200)
    assert first.json["status"] == "scheduled"
    assert first.json["from_at"][:16].replace("T", " ") in too_soon.json["detail"]
    assert done.json == {"status": "erased", "ids": [old], "descendants": [new], "from_at": None}
    gone = own.get(f"/memories/{old}")
    assert (gone.status_code, gone.json["detail"]) == (404, "The memory was erased for good.")
    assert contents(own.get("/memories?discarded=true")) == []
    assert "555 0142" not in own.get("/audit?limit=200").text
    assert problems() == []


def test_memories_of_others_are_not_found(world, agent):
    id_ = agent.ledger.core().limit(1)
    other = db.session.scalars(id_).one().id

    answers = [world.own.get(f"/memories/{other}"), world.own.delete(f"/memories/{other}")]

    assert [answer.status_code for answer in answers] == [404, 404]
