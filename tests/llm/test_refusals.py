"""What is repeated of a provider's refusal: codes, and never its words."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refine.llm import exchange
from refine.llm.refusals import Refusal, parse_refusal


def said(answer: Any) -> str:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return str(parse_refusal(body))


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
        ({"error": {"param": "messages[0].content"}}, "param messages"),
        ({"error": {"param": "tools.0.function.name"}}, "param tools"),
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
                    {"type": "extra_forbidden", "loc": ["body", "max_tokens", 0], "input": "canary"}
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
        {"code": "canary"},
        {"code": "order_canary"},
        {"code": "Invalid_Request_Error"},
        {"code": "error_of_anna_street"},
        {"code": "4711"},
        {"code": 4711},
        {"code": "two words"},
        {"code": "invalid_request_error\n"},
        {"code": "a_" * 40},
        {"type": "https://canary"},
        {"details": [{"reason": "order_canary"}]},
        {"metadata": {"error_type": "canary"}},
        {"availability": {"code": "canary"}},
    ],
)
def test_of_an_unknown_code_is_said_that_there_was_one(error: dict[str, Any]) -> None:
    assert said({"error": error}) == "another code"


@pytest.mark.parametrize(
    "error",
    [
        {"code": 400},
        {"code": "None", "type": "error"},
        {"code": True},
        {"code": ""},
        {"type": ["invalid_request_error"]},
        {"param": "canary"},
        {"param": "canary.messages"},
        {"param": "messages canary"},
        {"loc": ["body", "canary"]},
        {"loc": ["body"]},
        {"loc": ["body", ["messages"]]},
        {"message": "invalid_request_error"},
        {"details": "invalid_request_error"},
        {"details": ["invalid_request_error"]},
    ],
)
def test_nothing_else_is_said(error: dict[str, Any]) -> None:
    assert said({"error": error}) == ""


def test_known_codes_are_said_beside_unknown_ones() -> None:
    error = {"code": "canary", "type": "rate_limit_error", "param": "max_tokens"}

    assert said({"error": error}) == "type rate_limit_error, param max_tokens, another code"
    assert said({"error": {**error, "availability": {"code": "privacy_restricted"}}}) == (
        "type rate_limit_error, param max_tokens, code privacy_restricted, another code"
    )


@pytest.mark.parametrize("body", [b"", b"canary", b"null", b"[]", b"[" * 100_000, b"7", b"[[]]"])
def test_says_nothing_about_anything_but_an_error_object(body: bytes) -> None:
    assert said(body) == ""


def test_a_call_that_the_provider_refused_to_the_model_may_be_retried() -> None:
    assert Refusal({"code": "tool_use_failed"}).may_be_retried
    assert not Refusal({"code": "invalid_request_error"}).may_be_retried


def test_every_code_that_has_a_meaning_is_a_known_one() -> None:
    assert [
        code for code in exchange._CODES if said({"error": {"code": code}}) != f"code {code}"
    ] == []


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_no_text_is_ever_repeated(text: str) -> None:
    answer = {"error": {"code": text, "type": text, "param": text}}

    assert said(answer) in ("", "another code")
