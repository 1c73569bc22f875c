"""The memory context over HTTP, in two media types and with ETags."""

import pytest
from flask import Flask

from refine.extensions import db
from tests import factories
from tests.api.conftest import World, program_of, refreshed


def test_returns_the_context_with_its_size(world: World) -> None:
    answer = world.own.get("/context")

    agent = refreshed(world.agent)
    assert answer.status_code == 200
    assert answer.json == {
        "context": agent.memory_context(),
        "core_tokens": agent.core_token_usage,
        "budget": 5000,
    }
    assert answer.headers["Cache-Control"] == "private, no-cache"
    assert set(answer.vary) >= {"Accept", "Authorization"}


def test_the_context_is_null_without_memories(app: Flask) -> None:
    own = program_of(app, factories.agent())

    answer = own.get("/context")

    assert answer.json == {"context": None, "core_tokens": 0, "budget": 5000}
    assert own.get("/context", headers={"Accept": "text/markdown"}).text == ""


def test_returns_markdown_on_request(world: World) -> None:
    answer = world.own.get("/context", headers={"Accept": "text/markdown"})

    assert answer.mimetype == "text/markdown"
    assert answer.text == refreshed(world.agent).memory_context()


@pytest.mark.parametrize("accepted", ["*/*", "application/json", "text/*;q=0.1, */*", ""])
def test_prefers_json(world: World, accepted: str) -> None:
    answer = world.own.get("/context", headers={"Accept": accepted})

    assert answer.mimetype == "application/json"


def test_refuses_other_media_types(world: World) -> None:
    answer = world.own.get("/context", headers={"Accept": "text/html"})

    assert answer.status_code == 406
    assert answer.mimetype == "application/problem+json"


@pytest.mark.parametrize("accepted", ["application/json", "text/markdown"])
def test_is_not_sent_again_if_nothing_changed(world: World, accepted: str) -> None:
    first = world.own.get("/context", headers={"Accept": accepted})

    headers = {"Accept": accepted, "If-None-Match": first.headers["ETag"]}
    again = world.own.get("/context", headers=headers)

    assert not first.headers["ETag"].startswith("W/")
    assert (again.status_code, again.data) == (304, b"")
    assert again.headers["ETag"] == first.headers["ETag"]


@pytest.mark.parametrize("change", ["memory", "budget"])
def test_the_etag_changes_with_the_context_and_its_size(world: World, change: str) -> None:
    first = world.own.get("/context")
    if change == "memory":
        factories.memory(world.agent)
    else:
        world.agent.core_token_budget = 4000
    db.session.commit()

    again = world.own.get("/context", headers={"If-None-Match": first.headers["ETag"]})

    assert again.status_code == 200
    assert again.headers["ETag"] != first.headers["ETag"]


def test_json_and_markdown_have_different_etags(app: Flask) -> None:
    own = program_of(app, factories.agent())

    tags = {
        own.get("/context", headers={"Accept": accepted}).headers["ETag"]
        for accepted in ("application/json", "text/markdown")
    }

    assert len(tags) == 2
