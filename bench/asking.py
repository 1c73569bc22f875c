"""A browser and a program that ask the application, and bare routes to compare answers with."""

import contextvars
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

from flask import Blueprint, Flask, Response, current_app, render_template
from flask.testing import FlaskClient
from itsdangerous import URLSafeTimedSerializer
from jinja2 import Environment, Template
from werkzeug.test import TestResponse

from refine.api.authenticating import authenticate
from refine.api.routing import json_response
from refine.web import scope, signing_in

FRAME, BARE_PAGE, BARE_METRICS = "/bench/frame", "/bench/page", "/bench/metrics"
BARE_PLATFORM, BARE_AGENT = "/bench/platform", "/bench/agent"

_CSRF = "of the benchmark"
_ADDED = "refine.bench"


class Client(FlaskClient):
    """Asks each time in a context of its own, as a server does; anything unexpected raises."""

    def ask(self, path: str, headers: Mapping[str, str] | None = None, status: int = 200) -> Any:
        """Send a GET and return the answer, which must have this status."""
        return self._sent("GET", path, status, headers=headers)

    def submit(self, path: str, form_token: str) -> Any:
        """Send a form without fields; the answer must lead elsewhere."""
        return self._sent("POST", path, 303, data={"csrf_token": form_token})

    def _sent(self, method: str, path: str, status: int, **options: Any) -> TestResponse:
        opened = super().open
        answer = contextvars.Context().run(opened, path, method=method, buffered=True, **options)
        if answer.status_code != status:
            raise UnexpectedAnswer(f"{method} {path}: {answer.status_code}")
        return answer


class UnexpectedAnswer(Exception):
    """An answer has another status than it should."""


def bearer(secret: str, **headers: str) -> dict[str, str]:
    """Return the headers of a request with this token."""
    return {"Authorization": f"Bearer {secret}", **headers}


def signed_in(app: Flask, secret: str) -> Client:
    """Return a browser with the cookie of this sign-in."""
    browser = Client(app, app.response_class)
    with browser.session_transaction() as cookie:
        cookie.update({"_user_id": secret, "_fresh": True, "csrf_token": _CSRF})
    return browser


def form_token(app: Flask) -> str:
    """Return the token that forms of a signed-in browser carry."""
    serializer = URLSafeTimedSerializer(app.secret_key or "", "wtf-csrf-token")
    return str(serializer.dumps(_CSRF))


class BareRoutes:
    """What a page and an operation of the API cost if they say nothing.

    A page: who is signed in. An operation: its token, and the count of its limit. Also the frame
    that is around every page, without a page.
    """

    def __init__(self, app: Flask) -> None:
        """Add them to the application."""
        self._query: Callable[[], Any] | None = None
        bare = Blueprint("bench", __name__)
        bare.add_url_rule(FRAME, "frame", _framed)
        bare.add_url_rule(BARE_PAGE, "page", self._page)
        bare.add_url_rule(BARE_METRICS, "metrics", scope.public(lambda: self._metrics()))
        signing_in.protect(bare)
        app.register_blueprint(bare)
        app.add_url_rule(BARE_PLATFORM, "bench_platform", lambda: self._operation("platform"))
        app.add_url_rule(BARE_AGENT, "bench_agent", lambda: self._operation("agent"))
        app.extensions[_ADDED] = self

    @classmethod
    def of(cls, app: Flask) -> "BareRoutes":
        """Return those of the application, which are added once."""
        return cast(BareRoutes, app.extensions.get(_ADDED)) or cls(app)

    def with_query(self, ask: Callable[[], Any], query: Callable[[], Any]) -> Callable[[], None]:
        """Return what asks for a bare route that also carries out this query."""

        def asked() -> None:
            self._query = query
            try:
                ask()
            finally:
                self._query = None

        return asked

    def _page(self) -> str:
        self._carry_out_query()
        return scope.user().email

    def _metrics(self) -> Response:
        self._carry_out_query()
        return Response("", mimetype="text/plain")

    def _operation(self, kind: Any) -> Response:
        authenticate(kind)
        self._carry_out_query()
        return json_response({})

    def _carry_out_query(self) -> None:
        if self._query is not None:
            self._query()


def _framed() -> str:
    return render_template(_frame(current_app.jinja_env))


@cache
def _frame(templates: Environment) -> Template:
    return templates.from_string("{% extends 'base.html' %}")
