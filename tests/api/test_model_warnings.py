"""Platforms are told where sessions with a new model may fail."""

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from flask import Flask

from refine import create_app
from refine.extensions import db
from refine.settings import Settings
from tests import sql
from tests.api.conftest import Program, World, bearing, refreshed
from tests.scripted_model import ScriptedModel, send

LISTED = [
    {"id": "test/listed", "supported_parameters": ["tools"]},
    {"id": "test/mute", "supported_parameters": ["temperature"]},
]


@pytest.fixture
def platform(world: World, environ: dict[str, str], model: ScriptedModel) -> Iterator[Program]:
    """The platform, where a provider has a list of models."""
    model.catalogue = LISTED
    provider = {"OPENROUTER_BASE_URL": model.base_url}
    app = create_app(Settings.from_environ({**environ, **provider}))
    yield bearing(app, world.platform.secret)
    with app.app_context():
        db.engine.dispose()


def warnings_about(model_id: str, platform: Program) -> list[str]:
    answer = platform.post("/agents", json={"name": "Wren", "model_id": model_id})
    assert (answer.status_code, answer.json["model_id"]) == (201, model_id)
    return answer.json["warnings"]  # type: ignore[no-any-return]


def test_an_agent_with_a_listed_model_is_added_without_warnings(platform: Program) -> None:
    assert warnings_about("test/listed", platform) == []


def test_adds_an_agent_with_a_warning_if_its_model_is_unlisted_or_takes_no_tools(
    platform: Program,
) -> None:
    said = [warnings_about(name, platform) for name in ("test/none", "test/mute", "rehearsal/a")]

    assert said[:2] == [
        ["The provider lists no model 'test/none'."],
        ["The provider lists 'test/mute' without tools."],
    ]
    assert said[2][0].startswith("The rehearsal model answers only agents of the demo account;")


def test_only_a_change_of_the_model_is_checked(platform: Program, world: World) -> None:
    path = f"/agents/{world.agent.id}"
    sent = [{"model_id": "test/none"}, {"model_id": "test/none"}, {"paused": True}]

    answers = [platform.patch(path, json=each) for each in sent]

    assert [each.status_code for each in answers] == [200] * 3
    assert [each.json["warnings"] for each in answers] == [
        ["The provider lists no model 'test/none'."],
        *([], []),
    ]
    assert (refreshed(world.agent).model_id, world.agent.paused) == ("test/none", True)


def drops_the_connection(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


@pytest.mark.parametrize(
    "catalogue",
    [None, [], drops_the_connection, lambda handler: send(handler, 200, b"<html>")],
    ids=["none", "empty", "dropped", "unreadable"],
)
def test_nothing_is_said_where_the_list_cannot_be_had(
    platform: Program,
    model: ScriptedModel,
    catalogue: Callable[[BaseHTTPRequestHandler], None] | None,
) -> None:
    model.catalogue = catalogue

    assert warnings_about("test/none", platform) == []


def test_no_transaction_is_open_while_the_provider_is_asked(
    platform: Program, world: World, model: ScriptedModel, app: Flask
) -> None:
    open_meanwhile: list[int] = []

    def look(handler: BaseHTTPRequestHandler) -> None:
        with app.app_context():
            open_meanwhile.append(sql.open_transactions())
        send(handler, 200, {"data": LISTED})

    model.catalogue = look
    path = f"/agents/{world.agent.id}"
    db.session.rollback()

    platform.patch(path, json={"model_id": "test/none"})

    assert open_meanwhile == [0]
    assert refreshed(world.agent).model_id == "test/none"
