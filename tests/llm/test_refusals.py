"""What is repeated of a provider's refusal: codes, and never its words."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from refine.llm import exchange
from refine.llm.refusals import parse_refusal


def said(answer: Any) -> str:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return str(parse_refusal(body))


def test_codes_are_said_wherever_a_provider_puts_them():
    loc = [{"type": "extra_forbidden", "loc": ["body", "max_tokens", 0], "input": "canary"}]
    forbidden = {"type": "extra_forbidden", "loc": ["body", "canary"]}
    for answer, expected in (
        ([{"error": {"code": 400, "status": "INVALID_ARGUMENT"}}], "status INVALID_ARGUMENT"),
        (
            [{"error": {"details": [{"@type": "canary"}, {"reason": "API_KEY_INVALID"}]}}],
            "reason API_KEY_INVALID",
        ),
        (
            {"error": {"code": 400, "metadata": {"error_type": "context_length_exceeded"}}},
            "error_type context_length_exceeded",
        ),
        ({"error": {"param": "messages[0].content"}}, "param messages"),
        ({"error": {"param": "tools.0.function.name"}}, "param tools"),
        ({"object": "error", "type": "api_error", "code": 3280}, "code 3280, type api_error"),
        ({"code": "invalid-argument", "error": "canary"}, "code invalid-argument"),
        ({"detail": loc}, "type extra_forbidden, param max_tokens"),
        ({"message": {"detail": [forbidden]}, "type": "api_error"}, "type extra_forbidden"),
    ):
        assert said(answer) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        *(({"code": code}, "") for code in ("canary", "order_canary", "4711", 4711)),
        *(({"code": code}, "") for code in ("two words", "invalid_request_error\n", "a_" * 40)),
        ({"code": "Invalid_Request_Error"}, ""),
        ({"type": "https://canary"}, ""),
        ({"details": [{"reason": "order_canary"}]}, ""),
        ({"metadata": {"error_type": "canary"}}, ""),
        ({"availability": {"code": "canary"}}, ""),
        *(({"code": code}, "") for code in (400, True, "")),
        ({"code": "None", "type": "error"}, ""),
        ({"type": ["invalid_request_error"]}, ""),
        *(({"param": path}, "") for path in ("canary", "canary.messages", "messages canary")),
        *(({"loc": path}, "") for path in (["body", "canary"], ["body"], ["body", ["messages"]])),
        ({"message": "invalid_request_error"}, ""),
        *(({"details": details}, "") for details in ("api_error", ["api_error"])),
        (
            {"code": "canary", "type": "rate_limit_error", "param": "max_tokens"},
            "type rate_limit_error, param max_tokens",
        ),
        (
            {"type": "rate_limit_error", "availability": {"code": "privacy_restricted"}},
            "type rate_limit_error, code privacy_restricted",
        ),
    ],
)
def test_nothing_but_known_codes_and_parameters_is_said(error, expected):
    assert said({"error": error}) == expected


@pytest.mark.parametrize("body", [b"", b"canary", b"null", b"[]", b"[" * 100_000, b"7", b"[[]]"])
def test_ignores_everything_but_an_error_object(body):
    assert said(body) == ""


def test_every_code_that_has_a_meaning_is_a_known_one():
    for code in exchange._CODES:
        assert said({"error": {"code": code}}) == f"code {code}"


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_no_text_is_ever_repeated(text):
    answer = {"error": {"code": text, "type": text, "param": text}}

    assert said(answer) == ""
