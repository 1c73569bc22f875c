"""Conversations as platforms hand them over: what is kept, and what is refused."""

from datetime import UTC, datetime
from typing import Any

from refine.rules.conversation import (
    FIELDS,
    IGNORED,
    MAX_CONVERSATION_CHARACTERS,
    MAX_MESSAGE_CHARACTERS,
    MAX_MESSAGES,
    ROLES,
    valid_conversation,
)
from tests.rules.refusing import not_refused

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
HELLO = {"role": "user", "content": "hello"}


def read(conversation: Any) -> list[dict[str, Any]]:
    return valid_conversation(conversation, now=NOW)


def said(content: Any = "hello", **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **fields}


def test_keeps_role_content_name_and_time():
    for role in ROLES:
        assert read([{"role": role, "content": " hello "}]) == [{"role": role, "content": "hello"}]
    assert read([said(name="Ada", at=1_773_136_800), said(name=None, at=None)]) == [
        {"role": "user", "name": "Ada", "at": "2026-03-10T10:00:00+00:00", "content": "hello"},
        HELLO,
    ]


def test_a_message_may_have_every_known_field_at_once():
    message = said(**dict.fromkeys([*FIELDS[2:], *IGNORED]))

    assert read([message]) == [HELLO]


def test_joins_text_parts_and_drops_other_parts():
    one, two = {"type": "text", "text": "one"}, {"type": "text", "text": "two", "cache_control": {}}
    picture = {"type": "image_url", "image_url": {"url": "data:canary"}}

    assert read([said([one, picture, two])]) == [said("one\ntwo")]


def test_keeps_the_text_around_tool_calls():
    call = {"id": "1", "type": "function", "function": {"name": "canary", "arguments": "{}"}}
    rest = {"refusal": None, "annotations": [], "audio": None, "function_call": None}
    conversation = [
        said(),
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "canary", **rest},
        {"role": "tool", "tool_call_id": "1", "content": "12 °C"},
        {"role": "assistant", "content": "it is cold"},
    ]

    assert read(conversation) == [
        HELLO,
        {"role": "tool", "content": "12 °C"},
        {"role": "assistant", "content": "it is cold"},
    ]


def test_leaves_messages_without_text_out_but_needs_some_text():
    blank = [{"role": "user"}, *map(said, (None, "", " \n", [], [{"type": "image"}]))]

    assert read([*blank, said()]) == [HELLO]
    assert not_refused(read, [blank], "messages must hold some text") == []


def test_refuses_anything_but_a_list_of_messages():
    others = [None, "hello", {}, [], said()]
    assert not_refused(read, others, "messages must be a list of at least one message") == []


def test_names_the_place_of_a_mistake_without_quoting_it():
    text = "messages[1].content must be text"
    for message, refusal in (
        ("hello", "messages[1] must be an object"),
        ({"content": "hello"}, "messages[1].role must be one of system, developer"),
        (said(role="canary"), "messages[1].role must be one of"),
        (said(role=["user"]), "messages[1].role must be one of"),
        (said(canary=1), "messages[1] has an unknown field; known fields: role"),
        (said(7), text),
        (said({"type": "text", "text": "canary"}), text),
        (said(["canary"]), f"{text}, or a list"),
        (said([{"text": "canary"}]), f"{text}, or a list"),
        (said([{"type": ["text"], "text": "canary"}]), f"{text}, or a list"),
        (said([{"type": "text"}]), f"{text}, or a list"),
        (said([{"type": "text", "text": 7}]), f"{text}, or a list"),
        (said("canary\x00"), "messages[1].content must not contain a NUL"),
        (said("\ud800"), "messages[1].content must be valid Unicode"),
        (said(name="two\nlines"), "messages[1].name must be one line"),
        (said(at="canary"), "messages[1].at is not a time"),
        (said(at="2027-01-01"), "messages[1].at lies in the future"),
        (said("x" * (MAX_MESSAGE_CHARACTERS + 1)), "has 50,001 characters; at most 50,000"),
    ):
        assert not_refused(read, [[said(), message]], refusal) == [], refusal


def test_limits_are_inclusive():
    full = [said("x" * MAX_MESSAGE_CHARACTERS)] * (
        MAX_CONVERSATION_CHARACTERS // MAX_MESSAGE_CHARACTERS
    )

    assert len(read(full)) == len(full)
    assert len(read([said()] * MAX_MESSAGES)) == MAX_MESSAGES
    refusal = "messages have 500,001 characters; at most 500,000"
    assert not_refused(read, [[*full, said("x")]], refusal) == []
    refusal = "there are 2,001 messages; at most 2,000 are accepted"
    assert not_refused(read, [[said()] * (MAX_MESSAGES + 1)], refusal) == []
