"""The pages shown when something goes wrong: what happened, and what to do about it."""

from collections.abc import Mapping

from flask import Response, current_app, g, make_response, render_template
from flask_login import current_user
from flask_wtf.csrf import CSRFError
from sqlalchemy.exc import DBAPIError
from werkzeug.exceptions import HTTPException

from refine import faults
from refine.errors import BeingUpgraded, RowAltered
from refine.outages import Trouble
from refine.web import scope

_TITLES_AND_ADVICE = {
    400: ("This request could not be read", "Go back and try again."),
    403: ("Not allowed", "Your role does not permit this. Ask an admin, or a site admin."),
    404: ("Page not found", "It may have moved, or you may not have access to it."),
    405: ("Method not allowed", "Go back and use the buttons of the page."),
    409: ("Something changed in the meantime", "Nothing was done. Reload the page and try again."),
    413: ("The request is too large", "Send less data at a time."),
    500: ("Internal error", "Unfinished work was rolled back, and the error was logged."),
    503: ("The database reported an error", "Unfinished work was rolled back. Try again later."),
}
_TITLES_OF_TROUBLES: Mapping[Trouble, str] = {
    "away": "The database cannot be reached",
    "busy": "Refine is busy",
    "full": "The database is full",
}
_BEING_UPGRADED = "Refine is being upgraded"
_OUT_OF_DATE = (
    "This form is out of date",
    "You were signed out after you opened it, or it came from another site. Nothing was changed. "
    "If it was yours, go back, copy what you typed, and reload the page.",
)
_OTHERWISE = ("Something went wrong", "Try again in a moment.")


def page(error: Exception) -> Response:
    """Return the page for an error; it never shows memory content or a prompt."""
    fault = faults.handle(error)
    # a form that is sent again answers 422; an error page has no form
    status = 400 if fault.status == 422 else fault.status
    title, advice = _TITLES_AND_ADVICE.get(status, _OTHERWISE)
    if isinstance(error, CSRFError):
        title, advice = _OUT_OF_DATE
    elif isinstance(error, HTTPException):
        is_own = error.code in (400, 403) and error.description != type(error).description
        advice = (error.description if is_own else None) or advice
    elif fault.detail is not None:
        is_refusal = status in (400, 409, 429)
        title = _BEING_UPGRADED if isinstance(error, BeingUpgraded) else title
        title = "Request refused" if is_refusal else title
        title = _TITLES_OF_TROUBLES[fault.trouble] if fault.trouble else title
        advice = f"{fault.detail} Nothing was changed." if is_refusal else fault.detail
    words = {"title": title, "advice": advice}
    if status >= 500:
        words["request_id"] = g.get("request_id", "")
    answer = make_response(_render(status, **words), status)
    answer.headers.update(fault.headers)
    return answer


def _render(status: int, **words: str) -> str:
    if status != 503 and _is_signed_in():
        return render_template("errors/page.html", **words)
    # without the context processors: they ask the database who is signed in
    return current_app.jinja_env.get_template("errors/page.html").render(**words, bare=True)


def _is_signed_in() -> bool:
    try:
        return bool(current_user.is_authenticated and scope.user())
    except (DBAPIError, RowAltered):
        return False
