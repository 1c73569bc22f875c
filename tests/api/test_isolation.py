"""Pages and API are apart: neither runs the other's hooks, nor answers with the other's errors."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
from flask import Flask

from refine.api.routing import OPERATIONS, Operation
from refine.extensions import db
from tests.api.conftest import World
from tests.api.test_every_operation import ask, is_problem, name_of, path_of, right
from tests.web.conftest import Browser, browser_of, person

# ``granted`` looks at every response, but only at what a page has left in the request's context.
_OF_PAGES = re.compile(r"/refine/web/(?!granted)|/flask_login/|/flask_wtf/form")


@pytest.fixture
def dashboard(app: Flask) -> Browser:
    """The browser of somebody who is signed in."""
    user = person()
    db.session.commit()
    browser = browser_of(app)
    browser.sign_in(user.email)
    return browser


@contextmanager
def files_called() -> Iterator[set[str]]:
    """Yield the files of the functions that are called meanwhile."""
    files: set[str] = set()

    def note(frame: FrameType, _event: str, _argument: object) -> None:
        files.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("each", OPERATIONS, ids=name_of)
def test_an_operation_runs_no_code_of_the_pages(each: Operation, world: World) -> None:
    path = path_of(each, world)
    program = right(each, world)

    with files_called() as files:
        answers = [ask(each, program, path), program.open(path, method="PUT")]
        answers.append(ask(each, world.nobody, path))

    assert answers[0].status_code < 300
    assert any("refine/api/routing.py" in file for file in files)
    assert not [file for file in files if _OF_PAGES.search(file)]
    for answer in answers:
        assert "Set-Cookie" not in answer.headers
        assert "Cookie" not in answer.vary


def test_a_page_runs_the_hooks_of_the_pages(dashboard: Browser) -> None:
    with files_called() as files:
        dashboard.get("/agents")

    assert any(_OF_PAGES.search(file) for file in files)
    assert not any("/refine/api/" in file for file in files)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/api", 404),
        ("GET", "/apiary/context", 404),
        ("GET", "/agents/0", 404),
        ("GET", "/agents?page=nonsense", 400),
        ("POST", "/agents", 405),
        ("POST", "/schedule", 400),  # without a CSRF token
    ],
)
def test_an_error_of_a_page_is_a_page(
    dashboard: Browser, method: str, path: str, status: int
) -> None:
    answer = dashboard.open(path, method=method)

    assert (answer.status_code, answer.mimetype) == (status, "text/html")


@pytest.mark.parametrize("path", ["/api/", "/api/v2/context", "/api/v1/", "/api/v1/memories/"])
def test_an_error_below_the_address_of_the_api_is_a_problem(app: Flask, path: str) -> None:
    answer = browser_of(app).get(path)

    assert answer.status_code == 404
    assert is_problem(answer)
