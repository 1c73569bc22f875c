"""A finished conversation, handed over for extraction."""

import re

import pytest
from redis import Redis

from refine.extensions import db
from refine.models import MemoryTask
from refine.rules.conversation import MAX_CONVERSATION_CHARACTERS, MAX_MESSAGE_CHARACTERS
from tests.api.conftest import Everybody
from tests.in_redis import everything_in

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


def test_the_messages_of_an_everyday_agent_are_taken_as_they_are(
    everybody: Everybody, redis: Redis
) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "save_memory", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "You have a memory."},
        {"role": "user", "content": "Remember: the key."},
        {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": '{"type": "saved"}'},
        {"role": "assistant", "content": "I keep that.", "annotations": []},
    ]

    answer = everybody.own.post("/conversations", json={"messages": messages})

    (task,) = db.session.scalars(db.select(MemoryTask)).all()
    assert answer.status_code == 202
    assert [each["role"] for each in task.messages()] == ["system", "user", "tool", "assistant"]


def test_a_long_conversation_is_taken_whole(everybody: Everybody, redis: Redis) -> None:
    messages = [{"role": "user", "content": "ü" * MAX_MESSAGE_CHARACTERS}] * (
        MAX_CONVERSATION_CHARACTERS // MAX_MESSAGE_CHARACTERS
    )

    answer = everybody.own.post("/conversations", json={"messages": messages})

    assert answer.status_code == 202


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "messages must not be empty."),
        ([{"content": "x"}], "messages[0].role is required."),
        ([*SAID, {"role": "narrator", "content": "x"}], "messages[2].role must be one of: system"),
        ([{"role": "user", "content": " "}], "messages must hold some text."),
        ([*SAID, {"role": "user", "content": "x" * 50_001}], "messages[2].content has 50,001"),
        ([{"role": "user", "content": "x", "secret": 1}], "Unknown field in messages[0]; the fi"),
        ([{"role": "user", "content": [7]}], "messages[0].content[0] must be an object."),
        ("hello", "messages must be an array."),
    ],
)
def test_what_is_no_conversation_is_refused_and_nothing_kept(
    everybody: Everybody, messages: object, said: str
) -> None:
    answer = everybody.own.post("/conversations", json={"messages": messages})

    assert answer.status_code == 422
    assert answer.json["detail"].startswith(said)
    assert answer.json["errors"][0]["field"] == re.search(r"messages[^ ;]*", said)[0]  # type: ignore[index]
    assert db.session.scalars(db.select(MemoryTask)).all() == []


def test_too_many_that_wait_are_told_when_to_come_again(
    everybody: Everybody, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refine.models.runs.task.task.MAX_WAITING", 1)
    everybody.own.post("/conversations", json={"messages": SAID})

    answer = everybody.own.post("/conversations", json={"messages": SAID})

    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) > 0
