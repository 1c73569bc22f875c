"""Bodies are read strictly, and refusals repeat nothing of them."""

import contextvars
import json
from io import BytesIO
from typing import Any

import pytest
import requests
from flask import Flask

from refine.api.routing import MAX_BODY_BYTES
from refine.extensions import db
from tests.api.conftest import Program, token_of
from tests.browser.serving import free_port, serving

SECRET = "the words of a memory"
NEW = {"content": "x", "memory_type": "core"}


@pytest.mark.parametrize(
    "body",
    [
        b'{"content": "' + SECRET.encode() + b'",}',
        b'{"content": "one", "content": "two"}',
        b'{"content": "\\u0000"}',
        b'{"content": "\xff"}',
        b"[" * 100_000,
    ],
)
def test_refuses_json_that_is_not_strict(world, body):
    answer = world.own.post("/memories", data=body, content_type="application/json")

    assert answer.status_code == 400
    assert answer.mimetype == "application/problem+json"
    assert answer.json["detail"].startswith("The body ")
    assert SECRET not in answer.text


@pytest.mark.parametrize("body", [b"null", b"[]", b'"text"', b"7", b"true"])
@pytest.mark.parametrize("path", ["/memories", "/sessions"])
def test_refuses_a_body_that_is_not_an_object(world, path, body):
    answer = world.own.post(path, data=body, content_type="application/json")

    assert answer.status_code == 422
    assert answer.json["detail"] == "The body must be an object."


def test_refuses_a_body_of_another_media_type_but_not_a_blank_one(world):
    form = world.own.post("/memories", data={"content": "said", "memory_type": "core"})
    blank = world.own.post("/tools/self_authoring/calls", data=b" \n")

    assert (form.status_code, blank.status_code) == (415, 200)


class RevokingBody(BytesIO):
    """A body that takes so long to read that its sender's token is revoked meanwhile."""

    def __init__(self, app: Flask, sender: Program, sent: dict[str, str]) -> None:
        super().__init__(json.dumps(sent).encode())
        self._app = app
        self._sender = sender

    def readinto(self, buffer: Any) -> int:
        contextvars.Context().run(self._revoke)
        return super().readinto(buffer)

    def _revoke(self) -> None:
        with self._app.app_context():
            token_of(self._sender).revoke()
            db.session.commit()


def test_refuses_a_body_whose_token_is_revoked_while_it_is_read(app, world):
    body = RevokingBody(app, world.platform, {"name": "Wren", "model_id": "rehearsal/wren"})

    answer = world.platform.post(
        "/agents",
        input_stream=body,
        content_type="application/json",
        content_length=len(body.getvalue()),
    )

    assert answer.status_code == 401


@pytest.mark.parametrize("path", ["/memories", "/tools/save_memory/calls"])
@pytest.mark.parametrize("key", [{}, {"Idempotency-Key": "1"}])
def test_refuses_a_chunked_body_that_is_too_long(world, app, path, key):
    body = b'{"content": "said in chunks", "memory_type": "journal"}'
    headers = {"Authorization": f"Bearer {world.own.secret}", "Content-Type": "application/json"}

    def sent(spaces: int, rest: bytes = b"") -> int:
        # an iterator has no length, so it is sent in chunks
        chunks = iter([body, b" " * spaces, rest or b" "])
        url = f"http://localhost:{port}/api/v1{path}"
        return requests.post(url, data=chunks, headers={**headers, **key}, timeout=30).status_code

    with serving(app, port := free_port()):
        too_long = sent(MAX_BODY_BYTES, b"and more")
        one_too_long = sent(MAX_BODY_BYTES - len(body))
        longest = sent(MAX_BODY_BYTES - len(body) - 1)

    assert (too_long, one_too_long) == (413, 413)
    assert longest in (200, 201)
    assert len(world.own.get("/memories?type=journal").json["memories"]) == 1


@pytest.mark.parametrize(
    ("path", "body"), [("/memories", NEW), ("/sessions", {}), ("/context", None), ("/grants", None)]
)
def test_refuses_an_unknown_field_without_repeating_its_name(world, path, body):
    if body is None:
        answer = world.own.get(f"{path}?{SECRET}=1&{SECRET}=2")
    else:
        answer = world.own.post(path, json={**body, SECRET: 1})

    assert answer.status_code == 422
    assert answer.json["detail"] == "There is an unknown field or parameter."
    assert SECRET not in answer.text


def test_names_every_wrong_field_at_once(world):
    answer = world.own.post("/memories", json={"memory_type": "dream", "tags": [7]})

    assert [(each["field"], each["detail"][:13]) for each in answer.json["errors"]] == [
        ("content", "content: Fiel"),
        ("memory_type", "memory_type: "),
        ("tags[0]", "tags[0]: Inpu"),
    ]


def test_refusals_repeat_nothing_that_was_sent(world):
    for body in (
        {"content": SECRET, "memory_type": SECRET},
        {"content": SECRET * 1_000, "memory_type": "core"},
        {"content": SECRET, "memory_type": "core", "tags": [SECRET]},
        {"content": {SECRET: SECRET}, "memory_type": "core"},
    ):
        answer = world.own.post("/memories", json=body)

        assert answer.status_code == 422
        assert SECRET not in answer.text


def test_lists_the_first_invalid_fields_and_counts_the_others(world):
    answer = world.own.post("/memories", json={**NEW, "tags": [SECRET] * 1_000})

    assert answer.status_code == 422
    assert [error["field"] for error in answer.json["errors"]] == [f"tags[{n}]" for n in range(20)]
    assert answer.json["detail"].endswith("; and 980 more.")
    assert len(answer.data) < 5_000
