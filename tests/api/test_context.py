"""The memory context over HTTP, in two media types and with ETags."""

import pytest

from refine.extensions import db
from tests import factories
from tests.api.conftest import program_of, refreshed


def test_returns_the_context_with_its_size(world):
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


@pytest.mark.parametrize("accepted", ["application/json", "text/markdown"])
def test_is_not_sent_again_if_nothing_changed(world, accepted):
    first = world.own.get("/context", headers={"Accept": accepted})

    headers = {"Accept": accepted, "If-None-Match": first.headers["ETag"]}
    again = world.own.get("/context", headers=headers)

    assert not first.headers["ETag"].startswith("W/")
    assert (again.status_code, again.data) == (304, b"")
    assert again.headers["ETag"] == first.headers["ETag"]


@pytest.mark.parametrize("change", ["memory", "budget"])
def test_the_etag_changes_with_the_context_and_its_size(world, change):
    first = world.own.get("/context")
    if change == "memory":
        factories.memory(world.agent)
    else:
        world.agent.core_token_budget = 4000
    db.session.commit()

    again = world.own.get("/context", headers={"If-None-Match": first.headers["ETag"]})

    assert again.status_code == 200
    assert again.headers["ETag"] != first.headers["ETag"]


@pytest.mark.parametrize(
    ("accepted", "media_type"),
    [
        ("*/*", "application/json"),
        ("text/*;q=0.1, */*", "application/json"),
        ("text/markdown", "text/markdown"),
        ("text/html", "application/json"),
    ],
)
def test_answers_in_a_media_type_that_is_accepted(app, world, accepted, media_type):
    empty = program_of(app, factories.agent())

    answer = world.own.get("/context", headers={"Accept": accepted})
    nothing = empty.get("/context", headers={"Accept": accepted})

    assert (answer.status_code, answer.mimetype) == (200, media_type)
    if media_type == "text/markdown":
        assert answer.text == refreshed(world.agent).memory_context()
        assert nothing.text == ""
        assert nothing.headers["ETag"] != empty.get("/context").headers["ETag"]
    else:
        assert nothing.json == {"context": None, "core_tokens": 0, "budget": 5000}
