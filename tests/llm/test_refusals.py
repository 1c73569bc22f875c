"""What is repeated of a provider's refusal: codes, and never its words."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refine.llm.refusals import Refusal, parse_refusal

ASKED = {
    "model": "test/model",
    "max_tokens": 8_192,
    "messages": [{"role": "user", "content": "Anna lives at canary_street_9, order_canary. 4711."}],
    "tools": [{"type": "function", "function": {"name": "refinement"}}],
}


def said(answer: Any, asked: Any = ASKED) -> str:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return str(parse_refusal(body, asked))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            {
                "error": {
                    "message": "Unsupported parameter: 'max_tokens' … canary",
                    "type": "invalid_request_error",
                    "param": "max_tokens",
                    "code": "unsupported_parameter",
                }
            },
            "code unsupported_parameter, type invalid_request_error, param max_tokens",
        ),
        (
            {"type": "error", "error": {"type": "invalid_request_error", "message": "canary"}},
            "type invalid_request_error",
        ),
        (
            [{"error": {"code": 400, "message": "canary", "status": "INVALID_ARGUMENT"}}],
            "status INVALID_ARGUMENT",
        ),
        (
            [{"error": {"details": [{"@type": "canary"}, {"reason": "API_KEY_INVALID"}]}}],
            "reason API_KEY_INVALID",
        ),
        (
            {"error": {"code": 400, "metadata": {"error_type": "context_length_exceeded"}}},
            "error_type context_length_exceeded",
        ),
        (
            {"object": "error", "type": "invalid_request_assistant_message", "param": None},
            "type invalid_request_assistant_message",
        ),
        ({"error": {"param": "messages[0].content"}}, "param messages[0].content"),
        ({"error": {"param": "tools.0.function.name"}}, "param tools.0.function.name"),
        ({"error": {"code": "1211", "message": "canary"}}, "code 1211"),
        (
            {"object": "error", "type": "invalid_request", "code": 3280},
            "code 3280, type invalid_request",
        ),
        ({"error": {"code": "RateLimitReached"}}, "code RateLimitReached"),
        ({"code": "invalid-argument", "error": "canary"}, "code invalid-argument"),
        (
            {
                "detail": [
                    {"type": "extra_forbidden", "loc": ["body", "max_tokens"], "input": "canary"}
                ]
            },
            "type extra_forbidden, param max_tokens",
        ),
        (
            {
                "object": "error",
                "message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "canary"]}]},
                "type": "invalid_request_error",
            },
            "type extra_forbidden",
        ),
    ],
)
def test_the_codes_of_each_provider_are_said(answer: Any, expected: str) -> None:
    assert said(answer) == expected


@pytest.mark.parametrize(
    "error",
    [
        {"code": "Anna"},
        {"code": "canary"},
        {"code": "canary_street_9"},
        {"code": "CANARY_STREET_9"},
        {"code": "order_canary"},
        {"code": "lives-anna-at"},
        {"code": "AnnaLives"},
        {"code": "error_of_anna_street"},
        {"code": "at_4711_9"},
        {"code": "two words"},
        {"code": "line_\nbreak"},
        {"code": "a_" * 40},
        {"code": "_"},
        {"type": "https://canary"},
        {"code": "Canary"},
        {"code": 400},
        {"code": "4711"},
        {"code": True},
        {"type": ["invalid_request_error"]},
        {"param": "messages[0].canary"},
        {"param": "Anna"},
        {"param": "messages canary"},
        {"message": "invalid_request_error"},
        {"details": "invalid_request_error"},
        {"details": ["invalid_request_error", {"reason": "order_canary"}]},
    ],
)
def test_nothing_that_could_be_a_quotation_is_said(error: dict[str, Any]) -> None:
    assert said({"error": error}) == ""


@pytest.mark.parametrize("body", [b"", b"canary", b"null", b"[]", b"[" * 100_000, b"7", b"[[]]"])
def test_says_nothing_about_anything_but_an_error_object(body: bytes) -> None:
    assert said(body) == ""


def test_words_of_errors_are_said_although_a_memory_has_them_too() -> None:
    memory = "The request had an invalid context length; the rate limit of the tool was exceeded."
    asked = {"messages": [{"role": "user", "content": memory}]}

    for code in ("context_length_exceeded", "invalid_request_error", "RateLimitExceeded"):
        assert said({"error": {"code": code}}, asked) == f"code {code}"


def test_a_call_that_the_provider_refused_to_the_model_may_be_retried() -> None:
    assert Refusal({"code": "tool_use_failed"}).may_be_retried
    assert not Refusal({"code": "invalid_request_error"}).may_be_retried


def test_a_refusal_of_a_request_without_a_body_is_read_too() -> None:
    assert said({"error": {"code": "invalid_api_key", "param": "model"}}, None) == (
        "code invalid_api_key"
    )


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_no_content_of_a_message_is_ever_repeated(content: str) -> None:
    asked = {"messages": [{"role": "user", "content": content}]}
    answer = {"error": {"code": content, "type": content, "param": content}}

    assert content not in said(answer, asked) or content in ("role", "messages", "content")
