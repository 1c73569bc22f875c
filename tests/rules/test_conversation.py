"""Conversations as platforms hand them over: what is kept of them, and what is refused."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refine.errors import InvalidValue
from refine.rules.conversation import (
    FIELDS,
    IGNORED,
    MAX_CONVERSATION_CHARACTERS,
    MAX_MESSAGE_CHARACTERS,
    MAX_MESSAGES,
    ROLES,
    valid_conversation,
)

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


def valid(*messages: Any) -> list[dict[str, Any]]:
    return valid_conversation(list(messages), now=NOW)


def said(content: Any = "hello", **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **fields}


@pytest.mark.parametrize("role", ROLES)
def test_role_and_content_are_kept(role: str) -> None:
    assert valid({"role": role, "content": " hello "}) == [{"role": role, "content": "hello"}]


def test_name_and_time_are_kept_where_they_are_given() -> None:
    with_both = said(name="Ada", at=1_773_136_800)

    assert valid(with_both, said(name=None, at=None)) == [
        {"role": "user", "name": "Ada", "at": "2026-03-10T10:00:00+00:00", "content": "hello"},
        {"role": "user", "content": "hello"},
    ]


def test_text_parts_become_one_text() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]

    assert valid(said(parts))[0]["content"] == "one\ntwo"


def test_of_other_parts_nothing_is_kept() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:canary"}}
    text = {"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}}

    assert valid(said([picture, text])) == [{"role": "user", "content": "look"}]


def test_a_conversation_with_calls_of_tools_is_taken_for_what_was_said() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "canary", "arguments": "{}"}}
    rest = {"refusal": None, "annotations": [], "audio": None, "function_call": None}

    kept = valid(
        said(),
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "canary", **rest},
        {"role": "tool", "tool_call_id": "1", "content": "12 °C"},
        {"role": "assistant", "content": "it is cold"},
    )

    assert kept == [
        {"role": "user", "content": "hello"},
        {"role": "tool", "content": "12 °C"},
        {"role": "assistant", "content": "it is cold"},
    ]


NO_TEXT = [{"role": "user"}, said(None), said(""), said(" \n"), said([]), said([{"type": "image"}])]


@pytest.mark.parametrize("message", NO_TEXT)
def test_a_message_without_text_is_left_out(message: dict[str, Any]) -> None:
    assert valid(message, said()) == [{"role": "user", "content": "hello"}]


def test_a_conversation_without_text_is_refused() -> None:
    with pytest.raises(InvalidValue, match="^messages must hold some text$"):
        valid(*NO_TEXT)


@pytest.mark.parametrize("conversation", [None, "hello", {}, [], said()])
def test_anything_but_a_list_of_messages_is_refused(conversation: object) -> None:
    with pytest.raises(InvalidValue, match="^messages must be a list of at least one message$"):
        valid_conversation(conversation, now=NOW)


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("hello", r"messages\[1\] must be an object"),
        ({"content": "hello"}, r"messages\[1\]\.role must be one of system, developer"),
        (said(role="canary"), r"messages\[1\]\.role must be one of"),
        (said(role=["user"]), r"messages\[1\]\.role must be one of"),
        (said(canary=1), r"messages\[1\] has a field that is not known; it takes: role"),
        (said(7), r"messages\[1\]\.content must be text"),
        (said({"type": "text", "text": "canary"}), r"messages\[1\]\.content must be text"),
        (said(["canary"]), r"messages\[1\]\.content must be text, or a list"),
        (said([{"text": "canary"}]), r"content must be text, or a list"),
        (said([{"type": ["text"], "text": "canary"}]), r"content must be text, or a list"),
        (said([{"type": "text"}]), r"content must be text, or a list"),
        (said([{"type": "text", "text": 7}]), r"content must be text, or a list"),
        (said("canary\x00"), r"messages\[1\]\.content must not contain a NUL"),
        (said("\ud800"), r"messages\[1\]\.content must be valid Unicode"),
        (said(name="two\nlines"), r"messages\[1\]\.name must be one line"),
        (said(at="canary"), r"messages\[1\]\.at is not a time"),
        (said(at="2027-01-01"), r"messages\[1\]\.at lies in the future"),
        (said("x" * (MAX_MESSAGE_CHARACTERS + 1)), r"has 50,001 characters; at most 50,000"),
    ],
)
def test_what_is_wrong_is_named_by_its_place_and_not_repeated(message: Any, place: str) -> None:
    with pytest.raises(InvalidValue, match=place) as refusal:
        valid(said(), message)

    assert "canary" not in str(refusal.value)


def test_the_limits_are_inclusive() -> None:
    most = MAX_CONVERSATION_CHARACTERS // MAX_MESSAGE_CHARACTERS
    full = [said("x" * MAX_MESSAGE_CHARACTERS)] * most

    assert len(valid(*full)) == most
    assert len(valid(*[said()] * MAX_MESSAGES)) == MAX_MESSAGES
    with pytest.raises(InvalidValue, match="messages have 500,001 characters; at most 500,000"):
        valid(*full, said("x"))
    with pytest.raises(InvalidValue, match="messages are 2,001; at most 2,000 are taken"):
        valid(*[said()] * (MAX_MESSAGES + 1))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*FIELDS, *IGNORED, "type", "text"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(_JSON | st.lists(_JSON, max_size=3))
def test_whatever_comes_is_kept_or_refused(conversation: Any) -> None:
    try:
        kept = valid_conversation(conversation, now=NOW)
    except InvalidValue:
        return
    assert valid_conversation(kept, now=NOW) == kept
