"""What is sent: one JSON object, read strictly; nothing of it comes back in a refusal."""

import pytest
import requests
from flask import Flask

from refine.rules.tool_arguments import MAX_ARGUMENT_BYTES
from tests.api.conftest import Everybody
from tests.browser.serving import free_port, serving

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
    assert answer.json["detail"].startswith("The body ")
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


@pytest.mark.parametrize("path", ["/memories", "/tools/save_memory/calls"])
@pytest.mark.parametrize("key", [{}, {"Idempotency-Key": "1"}])
def test_a_body_that_comes_in_chunks_has_a_size_too(
    everybody: Everybody, app: Flask, path: str, key: dict[str, str]
) -> None:
    whole = b'{"content": "said in chunks", "memory_type": "journal"}'
    headers = {
        "Authorization": f"Bearer {everybody.own.secret}",
        "Content-Type": "application/json",
    }

    def sent(spaces: int, rest: bytes = b"") -> int:
        # what has no length goes in chunks
        chunks = iter([whole, b" " * spaces, rest or b" "])
        url = f"http://localhost:{port}/api/v1{path}"
        return requests.post(url, data=chunks, headers={**headers, **key}, timeout=30).status_code

    with serving(app, port := free_port()):
        too_long = sent(MAX_ARGUMENT_BYTES, b"and more")
        by_one = sent(MAX_ARGUMENT_BYTES - len(whole))
        longest = sent(MAX_ARGUMENT_BYTES - len(whole) - 1)

    assert (too_long, by_one) == (413, 413)
    assert longest in (200, 201)
    assert len(everybody.own.get("/memories?type=journal").json["memories"]) == 1


def test_an_unknown_field_is_refused_and_not_repeated(everybody: Everybody) -> None:
    answer = everybody.own.post(
        "/memories", json={"content": "x", "memory_type": "core", SECRET: 1}
    )

    assert answer.status_code == 422
    assert answer.json["errors"] == [
        {"field": "", "detail": "unknown field; the fields are: content, memory_type, tags"}
    ]


def test_where_no_field_is_taken_that_is_said(everybody: Everybody) -> None:
    body = everybody.own.post("/sessions", json={SECRET: 1})
    parameter = everybody.own.get(f"/context?{SECRET}=1")

    assert body.json["detail"] == "Unknown field; none is taken here."
    assert parameter.json["detail"] == "Unknown parameter; none is taken here."


def test_a_field_keeps_its_name_where_it_begins_a_sentence(everybody: Everybody) -> None:
    agent = f"/agents/{everybody.agent.id}"

    for body in ({"refinement_threshold": 2}, {"refinement_threshold": 0.33333}):
        answer = everybody.platform.patch(agent, json=body)

        assert answer.status_code == 422
        assert answer.json["detail"].startswith("refinement_threshold must ")
        assert answer.json["errors"][0]["field"] == "refinement_threshold"


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
