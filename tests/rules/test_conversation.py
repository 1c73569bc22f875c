"""Conversations as platforms hand them over: what is kept of them, and what is refused."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refine.errors import InvalidValue
from refine.rules.conversation import (
    FIELDS,
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


@pytest.mark.parametrize("conversation", [None, "hello", {}, [], said()])
def test_anything_but_a_list_of_messages_is_refused(conversation: object) -> None:
    with pytest.raises(InvalidValue, match="^conversation must be a list of at least one message$"):
        valid_conversation(conversation, now=NOW)


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("hello", r"conversation\[1\] must be an object"),
        ({"content": "hello"}, r"conversation\[1\]\.role must be one of system, developer"),
        (said(role="canary"), r"conversation\[1\]\.role must be one of"),
        (said(role=["user"]), r"conversation\[1\]\.role must be one of"),
        (said(canary=1), r"conversation\[1\] has a field that is not known; it takes: role"),
        ({"role": "user"}, r"conversation\[1\]\.content must be text"),
        (said(" \n"), r"conversation\[1\]\.content must not be empty"),
        (said(None), r"conversation\[1\]\.content must be text"),
        (said([]), r"conversation\[1\]\.content must not be empty"),
        (said(["canary"]), r"conversation\[1\]\.content must be text, or a list"),
        (said([{"type": "image", "text": "canary"}]), r"content must be text, or a list"),
        (said([{"type": "text", "text": 7}]), r"content must be text, or a list"),
        (said("canary\x00"), r"conversation\[1\]\.content must not contain a NUL"),
        (said("\ud800"), r"conversation\[1\]\.content must be valid Unicode"),
        (said(name="two\nlines"), r"conversation\[1\]\.name must be one line"),
        (said(at="canary"), r"conversation\[1\]\.at is not a time"),
        (said(at="2027-01-01"), r"conversation\[1\]\.at lies in the future"),
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
    with pytest.raises(InvalidValue, match="has 500,001 characters; at most 500,000 are taken"):
        valid(*full, said("x"))
    with pytest.raises(InvalidValue, match="has 2,001 messages; at most 2,000 are taken"):
        valid(*[said()] * (MAX_MESSAGES + 1))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*FIELDS, "type", "text"]), inner, max_size=4)
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
