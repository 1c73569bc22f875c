"""The answer and the log line for each exception; never a text from outside."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog
from flask import request
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, TimeoutError as PoolTimeout
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from refine.errors import (
    Erased,
    InvalidValue,
    NotFound,
    RefineError,
    Refused,
    RowAltered,
    SealingError,
    TooMany,
)
from refine.extensions import safe_rollback
from refine.models import schema_version
from refine.outages import TROUBLES, Trouble, database_trouble

RETRY_AFTER_SECONDS = 5

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Fault:
    """The answer to an exception; ``log``: event and cause; ``trouble``: that of the database."""

    status: int
    detail: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    log: tuple[str, str] | None = None
    trouble: Trouble | None = None


def handle(error: Exception) -> Fault:
    """Roll back, log the error if it has a ``log``, and return the answer."""
    if not isinstance(error, HTTPException):
        safe_rollback()
    if isinstance(error, DBAPIError):
        schema_version.forget()  # it may have been upgraded just now
    fault = classify(error)
    if fault.log is not None:
        event, cause = fault.log
        log = _log.error if fault.status == 500 else _log.warning
        log(event, route=str(request.url_rule), fault=cause)  # a path may hold a link's secret
        _log.debug(event, exc_info=error)
    return fault


def classify(error: Exception) -> Fault:
    detail = as_sentence(str(error)) if isinstance(error, RefineError) else None
    match error:
        case HTTPException():
            return Fault(error.code or 500, headers=_allowed_methods(error))
        case DataError():
            return Fault(422)
        case IntegrityError():  # lost a race
            return Fault(409)
        case DBAPIError():
            return _unavailable(database_trouble(error), log=("database error", str(error.args[0])))
        case PoolTimeout():
            log = ("no database connection was free", type(error).__name__)
            return _unavailable("busy", log=log)
        case NotFound():
            return Fault(404)
        case InvalidValue():
            return Fault(422, detail)
        case RowAltered():
            return Fault(409, detail, log=("a row was altered", str(error)))
        case TooMany():
            return Fault(429, detail, {"Retry-After": str(error.retry_after_seconds)})
        case Refused() | Erased():
            return Fault(409, detail)
        case SealingError():
            return Fault(500, detail, log=("content cannot be opened", str(error)))
        case RefineError():  # Unreachable; requests meet no other
            return _unavailable(detail=detail)
    # the message of an unexpected exception may quote content: only its class is logged
    return Fault(500, log=("fault", type(error).__name__))


def as_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _unavailable(
    trouble: Trouble | None = None,
    *,
    detail: str | None = None,
    log: tuple[str, str] | None = None,
) -> Fault:
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
    return Fault(503, TROUBLES[trouble] if trouble else detail, headers, log, trouble)


def _allowed_methods(error: HTTPException) -> dict[str, str]:
    if not isinstance(error, MethodNotAllowed) or not error.valid_methods:
        return {}
    return {"Allow": ", ".join(sorted(error.valid_methods))}
