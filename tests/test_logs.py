"""The log: one line per event with ids and figures, never content."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from flask import Flask
from structlog.testing import capture_logs

from refine import create_app
from refine.extensions import db
from refine.models import RefinementSession
from refine.settings import Settings
from refine.web.scope import public
from tests import factories
from tests.commands import environment

Lines = list[MutableMapping[str, Any]]


@pytest.fixture
def lines(app: Flask) -> Iterator[Lines]:
    """The lines that are logged."""
    with capture_logs() as captured:
        yield captured


def python(script: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", script],
        env=environment({}),
        capture_output=True,
        text=True,
        check=True,
    )


def test_an_ended_session_is_one_line_of_ids_and_figures(lines):
    owner = factories.agent("the canary sings", "a canary", system_prompt="You are a canary.")
    session = RefinementSession.start(owner)
    session.finish("completed", "the agent completed it", summary="a canary")
    before_the_commit = list(lines)

    db.session.commit()

    (line,) = lines
    assert before_the_commit == []
    assert (line["event"], line["session_id"]) == ("session ended", str(session.id))
    assert (line["agent_id"], line["account_id"]) == (owner.id, owner.account_id)
    assert (line["status"], line["mass_before"], line["cost_usd"]) == ("completed", 6, "0.000000")
    assert "canary" not in json.dumps(line)


@pytest.mark.parametrize(
    ("status", "error_kind", "level"),
    [
        ("completed", None, "info"),
        ("declined", None, "info"),
        ("rolled_back", None, "info"),
        ("incomplete", "provider_error", "warning"),
        ("failed", "rate_limited", "warning"),
        ("failed", "worker_stopped", "warning"),
        ("failed", "unauthorized", "error"),
        ("failed", "internal", "error"),
        ("failed", None, "error"),
    ],
)
def test_an_end_is_logged_once_and_as_bad_as_it_is(lines, status, error_kind, level):
    session = RefinementSession.start(factories.agent("a memory"))
    session.finish(status, "it ended", error_kind=error_kind)

    db.session.commit()

    (line,) = lines
    assert line["log_level"] == level


def test_a_rolled_back_end_is_not_logged(lines):
    session = RefinementSession.start(factories.agent("a memory"))
    db.session.commit()
    session.finish("completed", "the agent completed it")

    db.session.rollback()
    db.session.commit()

    assert lines == []


@pytest.fixture
def kept_log(app: Flask) -> Iterator[None]:
    """Restore the application's log afterwards."""
    log = logging.getLogger("refine")
    level, handlers = log.level, log.handlers
    yield
    log.setLevel(level)
    log.handlers = handlers


def test_a_fault_in_a_request_is_logged_without_its_message(kept_log, environ, capsys):
    own = create_app(Settings.from_environ(environ))

    @own.get("/fault")
    @public
    def fault() -> str:
        raise LookupError("a canary")

    answer = own.test_client().get("/fault")

    line, _request = map(json.loads, capsys.readouterr().err.splitlines())
    assert answer.status_code == 500
    assert (line["level"], line["event"], line["route"]) == ("error", "fault", "/fault")
    assert line["fault"] == "LookupError"
    assert "canary" not in json.dumps(line)


@pytest.mark.parametrize("is_terminal", [False, True])
def test_an_exception_is_logged_without_message_or_values(is_terminal):
    done = python(
        "import sys, logging, structlog\n"
        f"sys.stderr.isatty = lambda: {is_terminal}\n"
        "from refine import logs; logs.configure('DEBUG')\n"
        "kind = LookupError\n"  # Python 3.13 shows the lines of a program like this one
        "def fail(said):\n"
        "    raise kind(said)\n"
        "try:\n"
        "    fail('can' + 'ary')\n"
        "except kind as error:\n"
        "    structlog.get_logger('refine.tests').debug('one', exc_info=error)\n"
        "    structlog.get_logger('refine.tests').debug('two', exc_info=True)\n"
        "    logging.getLogger('rq.worker').exception('three')\n"
    )

    assert done.stderr.count("LookupError") == 3
    assert done.stderr.count("in fail") == 3
    assert "canary" not in done.stderr
