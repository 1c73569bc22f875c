"""What is shown where something goes wrong: what it was, and what to do."""

import structlog
from flask import Flask, current_app, render_template, request
from flask_login import current_user
from flask_wtf.csrf import CSRFError
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from werkzeug.exceptions import HTTPException

from refine.errors import RefineError, SealingError
from refine.extensions import db
from refine.web.words import first_upper

_log = structlog.get_logger(__name__)

_ADVICE = {
    400: ("This request could not be read", "Go back and try it again."),
    403: ("You may not do this", "A viewer sees, and does not act; ask an admin of your account."),
    404: ("There is no such page", "It may have moved, or it is not yours to see."),
    405: ("This page does not take that", "Go back and use its buttons."),
    409: ("Something changed since you looked", "Nothing was done. Look again, then decide."),
    413: ("That is too large", "Send less at once."),
    503: ("The database cannot be reached", "Nothing was lost. Try again in a moment."),
}

# Passwords, whatever their forms call them, and the token that is out of date.
_NOT_KEPT = ("csrf_token", "password", "again", "present")


def register(app: Flask) -> None:
    """Answer every error with a page in words; never with what a memory or prompt says."""
    app.register_error_handler(CSRFError, _stale)
    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(DBAPIError, _database)
    app.register_error_handler(PoolTimeout, _busy)
    app.register_error_handler(RefineError, _refused)
    app.register_error_handler(Exception, _fault)


def _stale(_error: CSRFError) -> tuple[str, int]:
    """The form was open for too long, or came from elsewhere: what was typed is kept."""
    typed = {name: value for name, value in request.form.items() if name not in _NOT_KEPT}
    return render_template("errors/stale.html", typed=typed), 400


def _http(error: HTTPException) -> tuple[str, int, dict[str, str]]:
    code = error.code or 500
    title, advice = _ADVICE.get(code, ("Something went wrong", "Try again in a moment."))
    is_ours = error.description != type(error).description
    said = error.description if code in (400, 403) and is_ours else None
    methods = getattr(error, "valid_methods", None)
    headers = {"Allow": ", ".join(sorted(methods))} if methods else {}
    return *_page(title, said or advice, code), headers


def _database(error: DBAPIError) -> tuple[str, int]:
    _forget()
    if isinstance(error, DataError):  # no text of the database may hold a NUL
        return _page(*_ADVICE[400], 400)
    if isinstance(error, IntegrityError):  # another request was quicker
        return _page(*_ADVICE[409], 409)
    _log.warning("database error", path=request.path, fault=str(error.args[0]))
    title, advice = _ADVICE[503]
    return _page(title, advice, 503)


def _busy(_error: PoolTimeout) -> tuple[str, int]:
    """Every connection is in use; asking for one more would take as long again."""
    _log.warning("no connection to the database was free", path=request.path)
    title, advice = _ADVICE[503]
    return _page(title, advice, 503)


def _refused(error: RefineError) -> tuple[str, int]:
    _forget()
    code = 500 if isinstance(error, SealingError) else 409
    return _page("This was refused", f"{first_upper(str(error))}. Nothing was changed.", code)


def _fault(error: Exception) -> tuple[str, int]:
    """A fault of ours: its class is logged; its message may quote what must not be."""
    _forget()
    _log.error("fault", path=request.path, fault=type(error).__name__)
    _log.debug("fault", exc_info=error)
    return _page("A fault in Refine", "What was not finished is undone. It is in the log.", 500)


def _forget() -> None:
    try:
        db.session.rollback()
    except DBAPIError:
        db.session.remove()


def _page(title: str, advice: str, code: int) -> tuple[str, int]:
    """With the menu for whoever is signed in; without anything of the database otherwise."""
    said = {"title": title, "advice": advice}
    if code != 503 and _is_signed_in():
        return render_template("errors/page.html", **said), code
    # without the names that every template is given: they ask the database who is signed in
    template = current_app.jinja_env.get_template("errors/page.html")
    return template.render(**said, bare=True), code


def _is_signed_in() -> bool:
    try:
        return bool(current_user.is_authenticated)
    except DBAPIError:
        return False
