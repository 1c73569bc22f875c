"""One HTTP exchange with a model's server, bounded in time and size, that can be cancelled."""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import requests
from urllib3.exceptions import MaxRetryError

from refine.errors import ProviderError
from refine.llm.dialects import Dialect
from refine.llm.refusals import Refusal, parse_refusal, retry_after_seconds
from refine.llm.wire import Wire

_CONNECT_SECONDS = 10.0
_POLL_SECONDS = 0.2
_MAX_REFUSAL_BYTES = 64 * 1024
_RETRIED_STATUS = frozenset({408, 429, *range(500, 600)})

_WRONG_KEY = ("unauthorized", "check OPENROUTER_API_KEY")

# The kind of error of a status, and what to do about it.
_STATUSES: dict[int, tuple[str, str | None]] = {
    400: ("invalid_request", None),
    401: _WRONG_KEY,
    402: ("out_of_credit", "the key has no credit left"),
    403: ("forbidden", "the key may not use this model, or a filter refused the request"),
    404: ("no_endpoint", None),  # the dialect says what to do
    408: ("timeout", None),
    413: ("too_large", "the request is larger than the provider accepts"),
    422: ("invalid_request", None),
    429: ("rate_limited", None),
}
# The same for codes that come with HTTP 400 and say more than the status.
_CODES = {
    "invalid_api_key": _WRONG_KEY,
    "API_KEY_INVALID": _WRONG_KEY,  # Gemini
    # LiteLLM without a database knows one key: https://github.com/BerriAI/litellm/issues/12273
    "no_db_connection": _WRONG_KEY,
    # xAI, for a wrong key and for any wrong argument: https://docs.x.ai/developers/debugging
    "invalid-argument": (
        "invalid_request",
        "check OPENROUTER_API_KEY; if it is right, the request is not accepted as it is",
    ),
}
# A request without a body has no arguments.
_CODES_WITHOUT_BODY = {**_CODES, "invalid-argument": _WRONG_KEY}


_Read = TypeVar("_Read")


class Cancelled(Exception):
    """The caller was asked to stop and no longer wants the answer."""


class Transient(ProviderError):
    """A fault that may be gone at the next attempt."""

    retry_after_seconds: float | None = None


@dataclass(frozen=True)
class Request:
    """What is sent to which address, in which dialect; ``body`` is None for a GET."""

    base_url: str
    path: str
    dialect: Dialect
    headers: Mapping[str, str] = field(repr=False)
    body: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class Answer:
    """The body of an answer with HTTP 200, and its headers."""

    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)


def exchange(
    request: Request,
    seconds: float,
    is_cancelled: Callable[[], bool] = lambda: False,
    *,
    max_bytes: int,
    read: Callable[[Answer], _Read],
) -> _Read:
    """Return what ``read`` makes of the answer, within ``seconds`` in all.

    Raises ProviderError if the server refused (Transient where another attempt may help) or its
    answer has more than ``max_bytes``, Cancelled as soon as ``is_cancelled`` returns True, and what
    ``read`` raises.
    """
    wire = Wire()
    try:
        return _within(
            seconds, is_cancelled, lambda: read(_send(request, seconds, max_bytes, wire))
        )
    finally:
        wire.cut()


def _send(request: Request, seconds: float, max_bytes: int, wire: Wire) -> Answer:
    try:
        with wire.session().request(
            "GET" if request.body is None else "POST",
            f"{request.base_url}{request.path}",
            json=request.body,
            headers=dict(request.headers),
            timeout=(min(_CONNECT_SECONDS, seconds), seconds),
            allow_redirects=False,
            stream=True,
        ) as response:
            _check_status(response, request)
            return Answer(_read(response, max_bytes), response.headers)
    except requests.Timeout as fault:
        message = "the model's server did not answer in time"
        raise _broken_off(message, "timeout", may_be_billed=_was_sent(fault)) from None
    except requests.RequestException as fault:
        message = f"the connection to {request.base_url} failed ({type(fault).__name__})"
        raise _broken_off(message, "connection", may_be_billed=_was_sent(fault)) from None
    except ProviderError:
        raise
    except Exception as fault:
        # whatever a server sends that a library did not expect; its words may quote the request
        message = f"the exchange with {request.base_url} failed ({type(fault).__name__})"
        raise ProviderError(message, kind="connection") from None


def _check_status(response: requests.Response, request: Request) -> None:
    status = response.status_code
    if status == requests.codes.ok:
        return
    refusal = parse_refusal(_first_bytes(response))
    kind, advice = _meaning(status, refusal, request)
    reasons = "; ".join(part for part in (advice or kind, str(refusal)) if part)
    message = f"the model's server answered HTTP {status} ({reasons})"
    if status not in _RETRIED_STATUS and not refusal.may_be_retried:
        raise ProviderError(message, kind=kind, http_status=status)
    fault = Transient(message, kind=kind, http_status=status)
    fault.retry_after_seconds = retry_after_seconds(
        response.headers, "Retry-After", request.dialect.retry_header
    )
    raise fault


def _meaning(status: int, refusal: Refusal, request: Request) -> tuple[str, str | None]:
    """Return the kind of error, and what to do about it."""
    unlisted = "provider_error" if status >= 500 else "refused"
    kind, advice = _STATUSES.get(status, (unlisted, None))
    if status == requests.codes.not_found:
        return kind, request.dialect.not_found
    if status == requests.codes.bad_request:
        known = _CODES if request.body is not None else _CODES_WITHOUT_BODY
        by_code = (known[code] for code in refusal.codes.values() if code in known)
        return next(by_code, (kind, advice))
    return kind, advice


def _first_bytes(response: requests.Response) -> bytes:
    """Return the beginning of a refusal; nothing if it is cut off: the status is enough."""
    try:
        return next(response.iter_content(_MAX_REFUSAL_BYTES), b"")
    except requests.RequestException:
        return b""


def _read(response: requests.Response, max_bytes: int) -> bytes:
    body = bytearray()
    for chunk in response.iter_content(64 * 1024):
        body += chunk
        if len(body) > max_bytes:
            fault = ProviderError("the model's answer is too large", kind="too_large")
            fault.may_be_billed = True
            raise fault
    return bytes(body)


def _broken_off(message: str, kind: str, *, may_be_billed: bool) -> Transient:
    fault = Transient(message, kind=kind)
    fault.may_be_billed = may_be_billed
    return fault


def _was_sent(fault: requests.RequestException) -> bool:
    """Tell whether the server may have got the request: it was connected to."""
    if type(fault) is requests.ConnectionError:
        return not (fault.args and isinstance(fault.args[0], MaxRetryError))
    broken = (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError)
    return isinstance(fault, (requests.ReadTimeout, *broken))


def _within(seconds: float, is_cancelled: Callable[[], bool], work: Callable[[], _Read]) -> _Read:
    """Run ``work`` in its own thread, for at most ``seconds``.

    A socket's timeout starts again with every byte, so a slow drip would never end, and a session
    that waits for its model could not be stopped. An abandoned thread ends with its socket.
    """
    done: queue.SimpleQueue[_Read | BaseException] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put(work())
        except BaseException as error:
            done.put(error)

    threading.Thread(target=run, name="refine-llm-call", daemon=True).start()
    deadline = time.monotonic() + seconds
    while not is_cancelled():
        left = deadline - time.monotonic()
        try:
            outcome = done.get(timeout=max(0.0, min(left, _POLL_SECONDS)))
        except queue.Empty:
            if left <= 0:
                message = "the model did not answer in time"
                raise _broken_off(message, "timeout", may_be_billed=True) from None
            continue
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome
    raise Cancelled
