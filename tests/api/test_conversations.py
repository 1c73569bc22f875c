"""A finished conversation, handed over for extraction."""

import pytest
from redis import Redis

from refine.extensions import db
from refine.models import MemoryTask
from refine.rules.conversation import MAX_CONVERSATION_CHARACTERS, MAX_MESSAGE_CHARACTERS
from tests.api.conftest import Everybody
from tests.jobs.test_queue import everything_in

SAID = [
    {"role": "user", "content": "Remember the canary.", "at": "2026-11-20T10:00:00Z"},
    {"role": "assistant", "content": [{"type": "text", "text": "I will."}]},
]


def test_a_conversation_waits_for_the_agent_sealed_and_not_in_redis(
    everybody: Everybody, redis: Redis
) -> None:
    answer = everybody.own.post("/conversations", json={"messages": SAID})

    (task,) = db.session.scalars(db.select(MemoryTask)).all()
    assert answer.status_code == 202
    assert (answer.json["id"], answer.json["status"]) == (str(task.id), "queued")
    assert (task.agent_id, task.kind) == (everybody.agent.id, "extraction")
    assert redis.exists(f"rq:job:{task.id}") == 1
    assert b"canary" not in everything_in(redis)


def test_a_long_conversation_is_taken_whole(everybody: Everybody, redis: Redis) -> None:
    messages = [{"role": "user", "content": "ü" * MAX_MESSAGE_CHARACTERS}] * (
        MAX_CONVERSATION_CHARACTERS // MAX_MESSAGE_CHARACTERS
    )

    answer = everybody.own.post("/conversations", json={"messages": messages})

    assert answer.status_code == 202


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "Messages must not be empty."),
        ([{"role": "user"}], "Content is required."),
        ([{"role": "narrator", "content": "x"}], "Role must be one of: system, developer"),
        ([{"role": "user", "content": " "}], "Conversation[0].content must not be empty."),
        ([{"role": "user", "content": "x", "secret": 1}], "Unknown field; the fields are: role"),
        ("hello", "Messages must be an array."),
    ],
)
def test_what_is_no_conversation_is_refused_and_nothing_kept(
    everybody: Everybody, messages: object, said: str
) -> None:
    answer = everybody.own.post("/conversations", json={"messages": messages})

    assert answer.status_code == 422
    assert answer.json["detail"].startswith(said)
    assert db.session.scalars(db.select(MemoryTask)).all() == []


def test_too_many_that_wait_are_told_when_to_come_again(
    everybody: Everybody, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refine.models.memory_task.task.MAX_WAITING", 1)
    everybody.own.post("/conversations", json={"messages": SAID})

    answer = everybody.own.post("/conversations", json={"messages": SAID})

    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) > 0
