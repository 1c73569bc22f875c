"""Every error of the API as a problem (RFC 9457): what is wrong, and no word of what is kept.

Texts of frameworks and of the database are not passed on: they may quote what they were given.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from flask import Blueprint, Flask, Response, g, request
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from werkzeug.exceptions import HTTPException

from refine import clock
from refine.errors import InvalidValue, NotFound, RefineError, Refused, SealingError, TooMany
from refine.extensions import canonical_json, db
from refine.models import SessionAlreadyLive
from refine.refinement.time_machine import UndoConflict

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 5

_log = structlog.get_logger(__name__)

# Of each status its word for programs, its title, and what to do about it.
_KINDS = {
    400: ("unreadable", "This could not be read", "Send one JSON object, in UTF-8."),
    401: ("unauthenticated", "A valid token is needed", "Send it as `Authorization: Bearer …`."),
    403: ("forbidden", "This token may not do that", "Use a token of the other kind."),
    404: ("not-found", "There is no such thing", "It may not exist, or not be yours to see."),
    405: ("method", "This does not take that method", "The Allow header names those it takes."),
    406: ("not-acceptable", "It cannot be had in that form", "Ask for application/json."),
    409: ("conflict", "The present state forbids it", "Nothing was changed."),
    413: ("too-large", "That is too large", "Send less at once."),
    415: ("media-type", "This kind of body is not read", "Send application/json."),
    422: ("invalid", "A value cannot be taken", "Correct it; nothing was changed."),
    429: ("too-many", "Too many requests", "Wait as long as Retry-After says."),
    500: ("fault", "A fault in Refine", "It is in the log, without what was sent."),
    503: ("unavailable", "The database cannot be reached", "Nothing was lost. Try again shortly."),
}


class Problem(Exception):
    """A refusal of the API's own; ``errors`` are (field, what is wrong) of a 422."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        **facts: Any,
    ) -> None:
        self.status = status
        self.detail = detail
        self.errors = errors
        self.headers = dict(headers or {})
        self.facts = facts
        super().__init__(detail)

    @classmethod
    def invalid(cls, faults: Sequence[tuple[str, str]]) -> "Problem":
        """Return the 422 of these faults: the field of each, and what is wrong with it."""
        field, first = faults[0]
        said = "; ".join(fault for _, fault in faults)
        # a field keeps its name, also where it begins the sentence
        is_named = bool(field) and first.startswith(field)
        return cls(422, f"{said}." if is_named else sentence(said), errors=faults)

    def answer(self) -> Response:
        """Return it as an answer."""
        facts = dict(self.facts)
        if self.errors:
            facts["errors"] = [{"field": field, "detail": said} for field, said in self.errors]
        return problem(self.status, self.detail, headers=self.headers, **facts)


def sentence(said: str) -> str:
    """Return what an error says as a sentence."""
    return f"{said[:1].upper()}{said[1:]}."


def problem(
    status: int,
    detail: str | None = None,
    *,
    kind: str | None = None,
    headers: Mapping[str, str] | None = None,
    **facts: Any,
) -> Response:
    """Return the answer of a status; ``kind`` where programs should tell it from its like."""
    usual, title, advice = _KINDS.get(status, _KINDS[400 if status < 500 else 500])
    body = {
        "type": f"urn:refine:problem:{kind or usual}",
        "title": title,
        "status": status,
        "detail": detail if detail is not None else advice,
        **facts,
    }
    answer = Response(canonical_json(body), status, mimetype=MEDIA_TYPE)
    answer.headers.extend(headers or {})
    if status == 503:
        answer.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return answer


def handle(api: Blueprint) -> None:
    """Answer whatever goes wrong in an operation with a problem."""
    api.register_error_handler(Problem, Problem.answer)
    api.register_error_handler(HTTPException, _http)
    api.register_error_handler(DBAPIError, _database)
    api.register_error_handler(PoolTimeout, _busy)
    api.register_error_handler(RefineError, _refused)
    api.register_error_handler(Exception, _fault)


def register(app: Flask) -> None:
    """Answer with a problem also what is asked below the API's address, and is no operation."""

    @app.after_request
    def _unrouted(answer: Response) -> Response:
        """What fits no route belongs to no blueprint, and was answered with a page."""
        is_ours = request.path.startswith("/api/") and request.url_rule is None
        if not is_ours or answer.status_code < 400:
            return answer
        methods = getattr(request.routing_exception, "valid_methods", None)
        allowed = {"Allow": ", ".join(sorted(methods))} if methods else {}
        return problem(answer.status_code, headers=allowed)


def safe_rollback() -> None:
    """End the transaction, if there still is a connection to end it on."""
    try:
        db.session.rollback()
    except DBAPIError:
        db.session.remove()


def _http(error: HTTPException) -> Response:
    return problem(error.code or 500)


def _database(error: DBAPIError) -> Response:
    safe_rollback()
    if isinstance(error, DataError):
        return problem(422)
    if isinstance(error, IntegrityError):  # another request was quicker
        return problem(409)
    _log.warning("database error", path=request.path, fault=str(error.args[0]))
    return problem(503)


def _busy(_error: PoolTimeout) -> Response:
    _log.warning("no connection to the database was free", path=request.path)
    return problem(503)


def _refused(error: RefineError) -> Response:
    safe_rollback()
    said = sentence(str(error))
    if isinstance(error, InvalidValue):
        place = str(error).partition(" ")[0].strip(":")
        field = place if re.split(r"[.\[]", place)[0] in g.get("fields", ()) else ""
        return Problem.invalid([(field, str(error))]).answer()
    if isinstance(error, NotFound):
        return problem(404)
    if isinstance(error, TooMany):
        return problem(429, said, headers={"Retry-After": str(error.retry_after_seconds)})
    if isinstance(error, SessionAlreadyLive):
        return problem(409, said, kind="session-already-live", session_id=str(error.session_id))
    if isinstance(error, UndoConflict):
        return problem(409, said, kind="undo-conflict", **_in_the_way(error))
    if isinstance(error, Refused):
        return problem(409, said)
    if not isinstance(error, SealingError):
        return problem(503, said)
    _log.error("content cannot be opened", path=request.path, fault=str(error))
    return problem(500, said)


def _in_the_way(conflict: UndoConflict) -> dict[str, Any]:
    obstacles = [
        {
            "memory_id": each.memory_id,
            "sequence": each.sequence,
            "action": each.action,
            "at": clock.iso(each.at),
            "session_id": str(each.session_id) if each.session_id is not None else None,
        }
        for each in conflict.obstacles
    ]
    return {"obstacles": obstacles, "unexplained_memory_ids": sorted(conflict.unexplained)}


def _fault(error: Exception) -> Response:
    """A fault of ours: its class is logged; its message may quote what must not be."""
    safe_rollback()
    _log.error("fault", path=request.path, fault=type(error).__name__)
    _log.debug("fault", exc_info=error)
    return problem(500)
