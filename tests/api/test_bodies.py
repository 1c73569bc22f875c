"""What is sent: one JSON object, read strictly; nothing of it comes back in a refusal."""

import pytest

from refine.rules.tool_arguments import MAX_ARGUMENT_BYTES
from tests.api.conftest import Everybody

SECRET = "the words of a memory"


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"content": "' + SECRET.encode() + b'",}',
        b'{"content": "one", "content": "two"}',
        b'{"content": NaN}',
        b'{"content": "\\u0000"}',
        b'{"content": "\\ud800"}',
        b'{"content": "\xff"}',
        b"[" * 100_000,
        b"1" * 5_000,
    ],
)
def test_what_is_not_strict_json_is_refused(everybody: Everybody, body: bytes) -> None:
    answer = everybody.own.post("/memories", data=body, content_type="application/json")

    assert answer.status_code == 400
    assert answer.mimetype == "application/problem+json"
    assert SECRET not in answer.text


@pytest.mark.parametrize("body", [b"null", b"[]", b'"text"', b"7", b"true"])
@pytest.mark.parametrize("path", ["/memories", "/sessions"])
def test_a_body_is_an_object(everybody: Everybody, path: str, body: bytes) -> None:
    answer = everybody.own.post(path, data=body, content_type="application/json")

    assert answer.status_code == 422
    assert answer.json["detail"] == "The body must be an object."


def test_a_body_says_that_it_is_json(everybody: Everybody) -> None:
    answer = everybody.own.post("/memories", data={"content": "said", "memory_type": "core"})

    assert answer.status_code == 415


def test_a_body_has_a_size(everybody: Everybody) -> None:
    body = b" " * (MAX_ARGUMENT_BYTES + 1)

    answer = everybody.own.post("/memories", data=body, content_type="application/json")

    assert answer.status_code == 413
    assert answer.mimetype == "application/problem+json"


def test_an_unknown_field_is_refused_and_not_repeated(everybody: Everybody) -> None:
    answer = everybody.own.post(
        "/memories", json={"content": "x", "memory_type": "core", SECRET: 1}
    )

    assert answer.status_code == 422
    assert answer.json["errors"] == [
        {"field": "", "detail": "unknown field; the fields are: content, memory_type, tags"}
    ]


def test_a_refusal_holds_nothing_of_what_was_sent(everybody: Everybody) -> None:
    for body in (
        {"content": SECRET, "memory_type": SECRET},
        {"content": SECRET * 1_000, "memory_type": "core"},
        {"content": SECRET, "memory_type": "core", "tags": [SECRET]},
        {"content": {SECRET: SECRET}, "memory_type": "core"},
    ):
        answer = everybody.own.post("/memories", json=body)

        assert answer.status_code == 422
        assert SECRET not in answer.text
