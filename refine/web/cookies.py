"""Cookies of the pages: set in one place, so that none lacks an attribute."""

from flask import current_app, request
from werkzeug.wrappers import Response

# Browsers take such a cookie only from this very host, over https, and for all of its paths: no
# neighbour under the same domain can plant one.
_HOST_PREFIX = "__Host-"


def full_name(name: str, *, is_https: bool) -> str:
    """Return the name under which browsers keep a cookie."""
    return f"{_HOST_PREFIX}{name}" if is_https else name


def value_of(name: str) -> str:
    """Return the value of a cookie of this request; empty if there is none."""
    return request.cookies.get(_full_name(name), "")


def keep(response: Response, name: str, value: str, *, seconds: int) -> None:
    """Have the browser keep a cookie, which scripts and other sites' forms do not get."""
    response.set_cookie(
        _full_name(name),
        value,
        max_age=seconds,
        httponly=True,
        secure=current_app.config["SESSION_COOKIE_SECURE"],
        samesite=current_app.config["SESSION_COOKIE_SAMESITE"],
    )


def _full_name(name: str) -> str:
    return full_name(name, is_https=current_app.config["SESSION_COOKIE_SECURE"])
