"""One line for each request, under an id that its answer and all its lines carry."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask

from refine import create_app
from refine.extensions import db
from refine.request_log import ID_HEADER, Durations
from refine.settings import Settings
from refine.web.scope import public
from tests import factories
from tests.api.conftest import bearing, program_of
from tests.commands import UNUSED_PORT
from tests.test_logs import kept_log
from tests.web.conftest import Browser, person, signed_in_browser

__all__ = ["kept_log"]

ID = "4f6e-from.the_platform"
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def own(kept_log: None, environ: dict[str, str], app: Flask) -> Iterator[Flask]:
    """An application that logs."""
    made = create_app(Settings.from_environ(environ))

    @made.get("/fault/<secret>")
    @public
    def fault(secret: str) -> str:
        raise LookupError(secret)

    yield made
    with made.app_context():
        db.engine.dispose()


@pytest.fixture
def lines(own: Flask, caplog: pytest.LogCaptureFixture) -> Lines:
    """What it has logged since the last time."""

    def read() -> list[dict[str, Any]]:
        said = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
        caplog.clear()
        return said

    return read


def test_a_request_is_one_line_without_path_query_or_address(own, lines):
    own.test_client().get("/agents/7?q=canary", headers={"User-Agent": "canary"})

    (line,) = lines()
    assert {name: line[name] for name in ("event", "method", "route", "status", "level")} == {
        "event": "request",
        "method": "GET",
        "route": "/agents/<int:agent_id>",
        "status": 303,
        "level": "info",
    }
    assert line["milliseconds"] > 0
    assert len(line["request_id"]) == 32
    assert "canary" not in json.dumps(line)
    assert "127.0.0.1" not in json.dumps(line)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/static/refine.css"])
def test_what_machines_ask_for_all_the_time_is_not_logged(own, lines, path):
    own.test_client().get(path).close()

    assert lines() == []


@pytest.mark.parametrize("given", [ID, "x" * 8, "x" * 128])
def test_the_id_of_the_platform_is_taken_over(own, lines, given):
    answer = own.test_client().get("/nowhere", headers={ID_HEADER: given})

    (line,) = lines()
    assert line["request_id"] == answer.headers[ID_HEADER] == given
    assert line["route"] == "other"


@pytest.mark.parametrize("given", ["", "short", "x" * 129, "two words", "<script>", "canary\xe9!"])
def test_another_id_is_replaced(own, lines, given):
    answer = own.test_client().get("/nowhere", headers={ID_HEADER: given})

    (line,) = lines()
    assert line["request_id"] == answer.headers[ID_HEADER] != given


def test_a_method_that_nobody_knows_is_not_quoted(own, lines):
    own.test_client().open("/sign-in", method="CANARY")

    (line,) = lines()
    assert (line["method"], line["status"]) == ("other", 405)


def test_a_fault_is_an_error_once_under_the_same_id_which_the_page_shows(own, lines):
    answer = own.test_client().get("/fault/canary", headers={ID_HEADER: ID})

    error, request = lines()
    assert (error["level"], request["level"]) == ("error", "info")
    assert error["request_id"] == request["request_id"] == ID
    assert ID in answer.text
    assert "canary" not in json.dumps([error, request])


def test_a_fault_that_has_no_page_is_logged_without_the_path(own, lines, monkeypatch):
    monkeypatch.setitem(own.jinja_env.globals, "url_for", None)

    with pytest.raises(TypeError):
        own.test_client().get("/fault/canary")

    said = lines()
    assert [line["event"] for line in said] == ["fault", "no answer"]
    assert "canary" not in json.dumps(said)


def test_no_line_of_the_next_request_has_ids_of_the_last(own, lines):
    client = own.test_client()
    client.get("/nowhere", headers={ID_HEADER: ID})

    client.get("/nowhere")

    assert lines()[1]["request_id"] != ID


def test_lines_say_which_user_asked(own, lines):
    admin = person(site_admin=False)
    browser: Browser = signed_in_browser(own, admin)
    lines()

    browser.get("/agents")

    (line,) = lines()
    assert line["user_id"] == admin.id


def test_lines_say_which_agent_asked_and_by_which_token(own, lines):
    agent = factories.agent()
    program = program_of(own, agent)

    program.get("/context")

    (line,) = lines()
    assert (line["agent_id"], line["route"]) == (agent.id, "/api/v1/context")
    assert line["token_id"] > 0


def test_a_problem_of_the_server_names_the_request(own, environ):
    away = f"postgresql://127.0.0.1:{UNUSED_PORT}/x"
    cut_off = create_app(Settings.from_environ({**environ, "DATABASE_URL": away}))
    secret = program_of(own, factories.agent()).secret

    answer = bearing(cut_off, secret).get("/context", headers={ID_HEADER: ID})

    assert (answer.status_code, answer.json["request_id"]) == (503, ID)


def test_processes_add_up_what_each_counted():
    durations = Durations(iter(["/a"]), processes=2)
    durations.add("/a", "2xx", 0.004)
    durations.add("/a", "2xx", 60)
    durations.process = 1
    durations.add("/a", "2xx", 0.004)
    durations.add("/made up", "5xx", 0.3)

    told = {label: (counts, total) for label, counts, total in durations.totals()}

    assert told.keys() == {("/a", "2xx"), ("other", "5xx")}
    counts, total = told["/a", "2xx"]
    assert (counts[0], counts[-1], sum(counts)) == (2, 1, 3)
    assert total == pytest.approx(60.008)
