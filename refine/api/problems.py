"""Errors of the API, as problem details (RFC 9457). They never repeat what was sent."""

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from flask import Response, g
from pydantic import BaseModel, ConfigDict

from refine import faults
from refine.api.schemas import FieldError, Omittable, Resource, Time
from refine.errors import InvalidValue
from refine.extensions import canonical_json
from refine.faults import as_sentence
from refine.models import SessionAlreadyLive
from refine.outages import Trouble
from refine.refinement.time_machine import UndoConflict

MEDIA_TYPE = "application/problem+json"

# By status: the last part of the type, the title, and the default detail.
KINDS = {
    400: ("unreadable", "The body cannot be read", "Send one JSON object, in UTF-8."),
    401: ("unauthenticated", "A valid token is required", "Send it as `Authorization: Bearer …`."),
    403: ("forbidden", "Not allowed with this token", "Use a token of the other kind."),
    404: ("not-found", "Not found", "It does not exist, or this token may not see it."),
    405: ("method", "Method not allowed", "The Allow header lists the allowed methods."),
    409: ("conflict", "Conflict with the current state", "Nothing was changed."),
    413: ("too-large", "The body is too large", "Send less data at a time."),
    415: ("media-type", "Unsupported media type", "Send application/json."),
    422: ("invalid", "A value is invalid", "Correct it; nothing was changed."),
    429: ("too-many", "Too many requests", "Wait as long as Retry-After says."),
    500: ("fault", "Internal error", "The error was logged, without the request's content."),
    503: ("unavailable", "Service unavailable", "Nothing was lost. Try again shortly."),
}
# Troubles of the database, by the last part of the problem's type.
_TROUBLES: Mapping[Trouble, str] = {"busy": "busy", "full": "database-full", "away": "unavailable"}


class Obstacle(Resource):
    """A record that prevents an undo."""

    memory_id: int
    sequence: int
    action: str
    at: Time
    session_id: uuid.UUID | None


class ProblemDetails(BaseModel):
    """An error, described for programs and people."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    type: str
    """`urn:refine:problem:` and a machine-readable word, such as `invalid`."""
    title: str
    status: int
    detail: str
    request_id: Annotated[str, Omittable]
    """For 5xx: what the log lines of this request carry."""
    errors: Annotated[list[FieldError], Omittable]
    """For 422: the invalid fields, at most 20 of them."""
    session_id: Annotated[uuid.UUID, Omittable]
    """For `session-already-live`: the live session."""
    obstacles: Annotated[list[Obstacle], Omittable]
    """For `undo-conflict`: the records that prevent the undo."""
    unexplained_memory_ids: Annotated[list[int], Omittable]
    """For `undo-conflict`: memories that were changed without a record."""


class Problem(Exception):
    """An error of the API; ``kind`` and ``facts`` are fields of its details."""

    def __init__(
        self,
        status: int,
        detail: str | None = None,
        *,
        kind: str | None = None,
        headers: Mapping[str, str] | None = None,
        **facts: Any,
    ) -> None:
        self.status, self.detail, self.kind = status, detail, kind
        self.headers, self.facts = headers or {}, facts
        super().__init__(detail)

    @classmethod
    def invalid(cls, errors: Sequence[FieldError], *, unlisted: int = 0) -> "Problem":
        """Return a 422 for field errors; ``unlisted``: the number of further ones."""
        field, first = errors[0].field, errors[0].detail
        more = [f"and {unlisted:,} more"] if unlisted else []
        detail = "; ".join([*(error.detail for error in errors), *more])
        # a field name is never capitalized
        is_named = bool(field) and first.startswith(field)
        return cls(422, f"{detail}." if is_named else as_sentence(detail), errors=errors)

    def response(self) -> Response:
        usual, title, advice = KINDS.get(self.status, KINDS[400 if self.status < 500 else 500])
        if self.status >= 500:
            self.facts["request_id"] = g.get("request_id", "")
        body = ProblemDetails(
            type=f"urn:refine:problem:{self.kind or usual}",
            title=title,
            status=self.status,
            detail=self.detail if self.detail is not None else advice,
            **self.facts,
        )
        written = canonical_json(body.model_dump(mode="json", exclude_unset=True))
        answer = Response(written, self.status, mimetype=MEDIA_TYPE)
        answer.headers.extend(self.headers)
        return answer


def answer(error: Exception) -> Response:
    """Return the problem that an exception is answered with."""
    if isinstance(error, Problem):
        return error.response()
    fault = faults.handle(error)
    if isinstance(error, InvalidValue):
        path = str(error).partition(" ")[0].strip(":")
        field = path if re.split(r"[.\[]", path)[0] in g.get("fields", ()) else ""
        return Problem.invalid([FieldError(field=field, detail=str(error))]).response()
    facts = {"kind": _TROUBLES[fault.trouble]} if fault.trouble else _facts(error)
    return Problem(fault.status, fault.detail, headers=fault.headers, **facts).response()


def _facts(error: Exception) -> dict[str, Any]:
    match error:
        case SessionAlreadyLive():
            return {"kind": "session-already-live", "session_id": error.session_id}
        case UndoConflict():
            return {
                "kind": "undo-conflict",
                "obstacles": [Obstacle.of(each) for each in error.obstacles],
                "unexplained_memory_ids": sorted(error.unexplained),
            }
    return {}
