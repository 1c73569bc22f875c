"""One HTTP exchange with a model's server, bounded in time and size, that can be cancelled."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import MaxRetryError

from refine.llm.dialects import Dialect
from refine.llm.messages import CallFailed
from refine.llm.refusals import Refusal, parse_refusal, retry_after_seconds
from refine.rules.prices import Usage

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
_Http = TypeVar("_Http", bound=requests.Session)
Answer = tuple[bytes, Mapping[str, str]]


class Cancelled(Exception):
    """The caller was asked to stop and no longer wants the answer."""


@dataclass(frozen=True)
class Request:
    base_url: str
    path: str
    dialect: Dialect
    headers: Mapping[str, str] = field(repr=False)
    body: Any = field(default=None, repr=False)


def exchange(
    request: Request,
    seconds: float,
    is_cancelled: Callable[[], bool] = lambda: False,
    *,
    max_bytes: int,
    read: Callable[[bytes, Mapping[str, str]], _Read],
) -> _Read:
    """Return what ``read`` makes of the body and headers of a HTTP 200, within ``seconds`` in all.

    Raises CallFailed if the server refused or its answer has more than ``max_bytes``, Cancelled as
    soon as ``is_cancelled`` returns True, and what ``read`` raises.

    Runs in a thread of its own: a socket's timeout starts again with every byte, so a slow drip
    would never end, and a session that waits for its model could not be stopped.
    """
    wire = Wire()
    done = Future[_Read]()

    def run() -> None:
        try:
            done.set_result(read(*_send(request, seconds, max_bytes, wire)))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="refine-llm-call", daemon=True).start()
    try:
        return _awaited(done, seconds, is_cancelled)
    finally:
        wire.cut()


def _awaited(done: Future[_Read], seconds: float, is_cancelled: Callable[[], bool]) -> _Read:
    deadline = time.monotonic() + seconds
    while not is_cancelled():
        left = deadline - time.monotonic()
        try:
            return done.result(timeout=max(0.0, min(left, _POLL_SECONDS)))
        except TimeoutError:
            if left <= 0:
                message = "the model did not answer in time"
                raise CallFailed(message, kind="timeout", usage=Usage()) from None
    raise Cancelled


def _send(request: Request, seconds: float, max_bytes: int, wire: "Wire") -> Answer:
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
            return _body(response, max_bytes), response.headers
    except requests.Timeout as fault:
        message = "the model's server did not answer in time"
        raise CallFailed(message, kind="timeout", usage=_usage_if_sent(fault)) from None
    except requests.RequestException as fault:
        message = f"the connection to {request.base_url} failed ({type(fault).__name__})"
        raise CallFailed(message, kind="connection", usage=_usage_if_sent(fault)) from None
    except CallFailed:
        raise
    except Exception as fault:
        # a library did not expect what the server sent; its message may quote the request
        message = f"the exchange with {request.base_url} failed ({type(fault).__name__})"
        raise CallFailed(message, kind="connection", is_transient=False) from None


def _check_status(response: requests.Response, request: Request) -> None:
    status = response.status_code
    if status == requests.codes.ok:
        return
    try:
        refusal = parse_refusal(next(response.iter_content(_MAX_REFUSAL_BYTES), b""))
    except requests.RequestException:  # it is cut off: the status is enough
        refusal = Refusal({})
    kind, advice = _meaning(status, refusal, request)
    reasons = "; ".join(part for part in (advice or kind, str(refusal)) if part)
    raise CallFailed(
        f"the model's server answered HTTP {status} ({reasons})",
        kind=kind,
        http_status=status,
        is_transient=status in _RETRIED_STATUS or refusal.may_be_retried,
        retry_after_seconds=retry_after_seconds(
            response.headers, "Retry-After", request.dialect.retry_header
        ),
    )


def _meaning(status: int, refusal: Refusal, request: Request) -> tuple[str, str | None]:
    unlisted = "provider_error" if status >= 500 else "refused"
    kind, advice = _STATUSES.get(status, (unlisted, None))
    if status == requests.codes.not_found:
        return kind, request.dialect.not_found
    if status == requests.codes.bad_request:
        known = _CODES if request.body is not None else _CODES_WITHOUT_BODY
        by_code = (known[code] for code in refusal.codes.values() if code in known)
        return next(by_code, (kind, advice))
    return kind, advice


def _body(response: requests.Response, max_bytes: int) -> bytes:
    body = bytearray()
    for chunk in response.iter_content(64 * 1024):
        body += chunk
        if len(body) > max_bytes:
            message = "the model's answer is too large"
            raise CallFailed(message, kind="too_large", is_transient=False, usage=Usage())
    return bytes(body)


def _usage_if_sent(fault: requests.RequestException) -> Usage | None:
    broken = (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError)
    was_sent = isinstance(fault, (requests.ReadTimeout, *broken))
    if type(fault) is requests.ConnectionError:
        was_sent = not (fault.args and isinstance(fault.args[0], MaxRetryError))
    return Usage() if was_sent else None


class Wire:
    """The sockets of an exchange: cutting them ends a thread that a slow server keeps busy.

    ``address``: that of the server, if it was looked up: by now, its name could lead elsewhere.
    """

    def __init__(self, address: str | None = None) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._is_cut = False
        self._sockets: list[socket.socket] = []

    def session(self) -> requests.Session:
        return self.guard(requests.Session())

    def guard(self, http: _Http) -> _Http:
        """Let this session use the wire alone, nothing of the environment, and no redirects."""
        # a .netrc would replace the bearer token, a proxy would see the ledger
        http.trust_env = False
        # requests parses and reads even redirects that it must not follow
        http.get_redirect_target = lambda _: None  # type: ignore[assignment, method-assign]
        for scheme in ("http://", "https://"):
            http.mount(scheme, _Adapter(self))
        return http

    @contextmanager
    def lasting(self, seconds: float) -> Iterator[None]:
        """Cut it at the end of the block, or after so many seconds: a socket's timeout starts again
        with every byte, so a slow drip would never end.
        """
        cutter = threading.Timer(seconds, self.cut)
        cutter.start()
        try:
            yield
        finally:
            cutter.cancel()
            self.cut()

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            for each in self._sockets:
                with suppress(OSError):  # it has ended
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
            self._sockets.clear()

    def open(self, connection: Any, open_socket: Callable[[Any], socket.socket]) -> socket.socket:
        if self._address is None:
            return open_socket(connection)
        return socket.create_connection((self._address, connection.port), connection.timeout)

    def keep(self, opened: socket.socket) -> socket.socket:
        with self._lock:
            if self._is_cut:
                opened.close()
                raise ConnectionAbortedError("the request was cancelled")
            # a duplicate, because TLS takes the socket over
            self._sockets.append(opened.dup())
        return opened


class _Adapter(HTTPAdapter):
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        super().__init__()

    def get_connection_with_tls_context(self, *arguments: Any, **options: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*arguments, **options)
        open_socket, wire = pool.ConnectionCls._new_conn, self._wire
        kept = {"_new_conn": lambda connection: wire.keep(wire.open(connection, open_socket))}
        pool.ConnectionCls = type("Connection", (pool.ConnectionCls,), kept)
        return pool
