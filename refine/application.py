"""The Flask application, put together."""

import re
from collections.abc import Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import structlog
from flask import Flask, Response, current_app, g, request
from sqlalchemy.orm import configure_mappers
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.routing import IntegerConverter

from refine import api, logs, refusals, request_log, web
from refine.api import problems
from refine.extensions import (
    CONNECT_ARGS,
    POOLED_CONNECT_ARGS,
    db,
    end_reading,
    migrate,
    safe_rollback,
)
from refine.llm.provider import dialect_of
from refine.models.columns import id_in
from refine.places import ROOT
from refine.sealing import Keyring
from refine.settings import Settings
from refine.web import errors

_log = structlog.get_logger(__name__)

# Operations of the API have limits of their own. Werkzeug would write larger forms to the disk.
_LARGEST_FORM_BYTES = 500_000

# All links begin with it: anything else could lead to another host.
_PREFIX = re.compile(r"(/[\w~-][\w.~-]*)*/?", re.ASCII)

# An address in brackets, one with a port, or one of IPv4 as a socket of IPv6 shows it.
_ADDRESS = re.compile(
    r"\[(?P<v6>[\da-f:.]+)\](:\d+)?|(::ffff:)?(?P<v4>(\d{1,3}\.){3}\d{1,3})(:\d+)?", re.IGNORECASE
)

# Security headers of every response.
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# Refine uses none of these, so they are denied, even if another site opens the page.
_PERMISSIONS_POLICY = "camera=(), display-capture=(), geolocation=(), microphone=(), payment=()"

_HEADERS = {
    "Content-Security-Policy": _CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": _PERMISSIONS_POLICY,
}

# Built before a fork, by settings.
_built: dict[Settings, Flask] = {}


def build_for_forks(settings: Settings) -> None:
    """Build the application in advance: forked processes get it from ``build``."""
    _built[settings] = build(settings)


def build(settings: Settings) -> Flask:
    if settings in _built:
        logs.configure(settings.log_level)
        return _built[settings]
    app = Flask(
        "refine",
        template_folder=str(ROOT / "templates"),
        static_folder=str(ROOT / "static"),
    )
    app.config.update(_config(settings))
    app.wsgi_app = _with_plain_names(app.wsgi_app)  # type: ignore[assignment, method-assign]
    if settings.proxies:
        # each appends the address that called it; anything before that can be forged
        trusted = {"x_for": settings.proxies, "x_proto": settings.proxies}
        # but only the one that knows the prefix names it
        app.wsgi_app = ProxyFix(app.wsgi_app, **trusted, x_prefix=1)  # type: ignore[method-assign]
    dialect_of(settings)  # a name that does not exist stops the start
    app.extensions["refine.settings"] = settings
    app.extensions["refine.keyring"] = Keyring(settings.encryption_keys)
    logs.configure(settings.log_level)
    db.init_app(app)
    # before the session is closed, which would raise if its connection is gone; the request's work
    # is already committed
    app.teardown_appcontext(lambda _fault: safe_rollback())
    migrate.init_app(app, db, directory=str(ROOT / "migrations"))
    app.before_request(_forget_last_request)
    request_log.register(app)
    app.after_request(_set_headers)
    app.after_request(end_reading)
    app.url_map.converters["int"] = _IdConverter
    app.register_error_handler(Exception, _answer_error)
    app.log_exception = _log_exception  # type: ignore[assignment, method-assign]
    web.register(app)
    api.register(app, settings)
    request_log.share_durations(app, settings.web_concurrency)
    configure_mappers()  # so that no process pays for it, or fails at it, later
    return app


def _config(settings: Settings) -> dict[str, Any]:
    return {
        "SECRET_KEY": settings.secret_key,
        "SQLALCHEMY_DATABASE_URI": settings.database_url,
        # enough for all runs of a worker; those beyond the pool's usual size are closed after use
        "SQLALCHEMY_ENGINE_OPTIONS": {
            "max_overflow": max(10, settings.concurrency),
            "connect_args": POOLED_CONNECT_ARGS if settings.pooled else CONNECT_ARGS,
        },
        # over https, browsers keep a __Host- cookie to this very host, and to all of its paths: no
        # neighbour under the same domain can plant one
        "SESSION_COOKIE_NAME": "__Host-session" if settings.is_https else "session",
        "SESSION_COOKIE_HTTPONLY": True,
        "SESSION_COOKIE_SAMESITE": "Lax",
        "SESSION_COOKIE_SECURE": settings.is_https,
        "WTF_CSRF_TIME_LIMIT": None,  # as long as the sign-in
        "WTF_CSRF_SSL_STRICT": False,  # we send no referrer; Sec-Fetch-Site is checked instead
        "MAX_CONTENT_LENGTH": _LARGEST_FORM_BYTES,
    }


def _with_plain_names(app: WSGIApplication) -> WSGIApplication:
    """Ignore a ``SCRIPT_NAME`` that is no path: a proxy may pass on a client's header.

    Some proxies append the port to a client's address; with it, each connection would count anew.
    """

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if (found := _ADDRESS.fullmatch(environ.get("REMOTE_ADDR", ""))) is not None:
            environ["REMOTE_ADDR"] = found["v6"] or found["v4"]
        if not _PREFIX.fullmatch(environ["SCRIPT_NAME"]):
            environ["SCRIPT_NAME"] = ""
        return app(environ, start_response)

    return answer


def _forget_last_request() -> None:
    """Empty ``g``: tests reuse one application context for several requests."""
    for name in list(g):
        g.pop(name)


def _set_headers(response: Response) -> Response:
    response.headers.update(_HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
    if current_app.config["SESSION_COOKIE_SECURE"]:
        response.headers["Strict-Transport-Security"] = "max-age=31536000"
    return response


class _IdConverter(IntegerConverter):
    """An integer in a path is an id; one that no row can have becomes 0."""

    def to_python(self, value: str) -> int:
        return id_in(value) or 0


def _log_exception(error: Any) -> None:
    """Log what no error page could be made of, without the path, which Flask would quote."""
    _log.error("no answer", fault=error[0].__name__)


def _answer_error(error: Exception) -> Response:
    is_api = request.path.startswith("/api/")
    answer = problems.answer(error) if is_api else errors.page(error)
    refusals.count_response(answer)
    return answer
