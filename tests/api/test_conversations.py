"""Finished conversations are handed over for extraction."""

import re
from datetime import timedelta

import pytest

from refine import clock
from refine.extensions import db
from refine.models import MemoryTask
from tests.api.conftest import World
from tests.in_redis import everything_in

SAID = [
    {"role": "user", "content": "Remember the canary.", "at": "2026-11-20T10:00:00Z"},
    {"role": "assistant", "content": [{"type": "text", "text": "I will."}]},
]


def test_queues_a_conversation_but_keeps_it_out_of_redis(world, redis):
    answer = world.own.post("/conversations", json={"messages": SAID})

    (task,) = db.session.scalars(db.select(MemoryTask)).all()
    assert answer.status_code == 202
    assert (answer.json["id"], answer.json["status"]) == (str(task.id), "queued")
    assert (task.agent_id, task.kind) == (world.agent.id, "extraction")
    assert redis.exists(f"rq:job:{task.id}") == 1
    assert b"canary" not in everything_in(redis)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "messages: List should have at least 1 item"),
        ([*SAID, {"role": "narrator", "content": "x"}], "messages[2].role must be one of"),
        ([{"role": "user", "content": " "}], "messages must hold some text."),
        ("hello", "messages: Input should be a valid list"),
    ],
)
def test_refuses_a_malformed_conversation_and_keeps_nothing(world, messages, said):
    answer = world.own.post("/conversations", json={"messages": messages})

    assert answer.status_code == 422
    assert answer.json["detail"].startswith(said)
    assert answer.json["errors"][0]["field"] == re.search(r"messages[^ ;:]*", said)[0]  # type: ignore[index]
    assert db.session.scalars(db.select(MemoryTask)).all() == []


def handed_over(world: World) -> MemoryTask:
    id_ = world.own.post("/conversations", json={"messages": SAID}).json["id"]
    return db.session.get_one(MemoryTask, id_)


def status_of(world: World, task: MemoryTask) -> tuple[str, str | None]:
    db.session.commit()
    answer = world.own.get(f"/conversations/{task.id}")
    assert answer.status_code == 200
    assert "canary" not in answer.text
    return answer.json["status"], answer.json["reason"]


def test_returns_the_status_of_a_conversation_until_it_is_read(world, redis):
    task = handed_over(world)
    seen = [status_of(world, task)]
    task.claim()
    seen.append(status_of(world, task))
    task.give_up("the key has no credit left", "out_of_credit")
    seen.append(status_of(world, task))
    waiting = world.own.get(f"/conversations/{task.id}").json
    assert waiting["next_attempt_at"] == clock.iso(task.due_at)
    task.claim(task.due_at)
    task.finish("completed")
    seen.append(status_of(world, task))

    assert seen == [
        ("queued", None),
        ("running", None),
        ("waiting", "out_of_credit"),
        ("done", None),
    ]


def test_returns_why_a_conversation_was_given_up(world, redis):
    failed, blocked = handed_over(world), handed_over(world)
    failed.claim()
    failed.give_up("the key has no credit left", "out_of_credit")
    blocked.due_at = clock.now() + timedelta(hours=1)
    waiting = [status_of(world, each) for each in (failed, blocked)]

    for task in (failed, blocked):
        task.created_at -= timedelta(days=7)
        db.session.flush()
        assert task.end_if_lapsed()
    ended = [status_of(world, each) for each in (failed, blocked)]

    assert waiting == [("waiting", "out_of_credit"), ("waiting", "unavailable")]
    assert ended == [("given_up", "out_of_credit"), ("given_up", "lapsed")]


def test_a_conversation_is_shown_to_its_own_agent_alone(world, redis):
    task = handed_over(world)
    reflection = MemoryTask.reflect(world.agent, "cli")
    db.session.commit()

    for program, id_ in (
        (world.sibling, task.id),
        (world.platform, task.id),
        (world.own, reflection.id),
    ):
        assert program.get(f"/conversations/{id_}").status_code in (403, 404)
