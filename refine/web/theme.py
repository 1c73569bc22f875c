"""Light or dark: the system's choice, unless this browser's user made another."""

from flask import Blueprint, Flask, current_app, flash, redirect, request, url_for
from werkzeug.wrappers import Response

THEMES = {"": "as the system", "light": "light", "dark": "dark"}
_COOKIE = "theme"
_A_YEAR_IN_SECONDS = 31_536_000

pages = Blueprint("theme", __name__)


def register(app: Flask) -> None:
    """Tell every page its theme."""
    app.context_processor(lambda: {"theme": chosen(), "THEMES": THEMES})


def chosen() -> str:
    """Return the theme that this browser keeps; empty for the system's."""
    kept = request.cookies.get(_COOKIE, "")
    return kept if kept in THEMES else ""


@pages.post("/profile/theme")
def choose() -> Response:
    """Keep a theme in this browser."""
    wanted = request.form.get("theme", "")
    response = redirect(url_for("signing_in.profile"), 303)
    if wanted in THEMES:
        response.set_cookie(
            _COOKIE,
            wanted,
            max_age=_A_YEAR_IN_SECONDS,
            secure=current_app.config["SESSION_COOKIE_SECURE"],
            httponly=True,
            samesite="Lax",
        )
        flash(f"Pages are {THEMES[wanted]} now." if wanted else "Pages are as the system is now.")
    return response
