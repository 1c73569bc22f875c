"""Light or dark: the system's choice, unless this browser's user made another."""

from flask import Blueprint, Flask, flash, redirect, request, url_for
from werkzeug.wrappers import Response

from refine.web import cookies

THEMES = {"": "as the system", "light": "light", "dark": "dark"}
_COOKIE = "theme"
_A_YEAR_IN_SECONDS = 31_536_000

pages = Blueprint("theme", __name__)


def register(app: Flask) -> None:
    """Tell every page its theme."""
    app.context_processor(lambda: {"theme": chosen(), "THEMES": THEMES})


def chosen() -> str:
    """Return the theme that this browser keeps; empty for the system's."""
    kept = cookies.value_of(_COOKIE)
    return kept if kept in THEMES else ""


@pages.post("/profile/theme")
def choose() -> Response:
    """Keep a theme in this browser."""
    wanted = request.form.get("theme", "")
    response = redirect(url_for("signing_in.profile"), 303)
    if wanted in THEMES:
        cookies.keep(response, _COOKIE, wanted, seconds=_A_YEAR_IN_SECONDS)
        flash(
            f"Pages are now {THEMES[wanted]}." if wanted else "Pages now follow the system's theme."
        )
    return response
