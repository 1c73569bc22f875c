"""OpenRouter's chat completions over plain HTTP: one call to one model, or a ProviderError.

A failed HTTP call is retried here, because nothing was executed yet: at most three attempts within
the caller's deadline. Callers only see a Reply or an error.
"""

import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import requests
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from refine.errors import ProviderError
from refine.llm.messages import Message, Reply
from refine.llm.replies import Unusable, parse_reply

MAX_OUTPUT_TOKENS = 8_192
MAX_ATTEMPTS = 3
MAX_RETRY_AFTER_SECONDS = 60.0
MAX_REPLY_BYTES = 16 * 1024 * 1024

_CONNECT_SECONDS = 10.0
_CATALOGUE_SECONDS = 10.0
# so that one attempt never uses up the time of a session
_ATTEMPT_SECONDS = 300.0
_POLL_SECONDS = 0.2
_BACKOFF_SECONDS = (0.5, 2.0)
_RETRIED_STATUS = frozenset({408, 429, *range(500, 600)})
_NO_CATALOGUE = (ProviderError, ValueError, LookupError, TypeError, RecursionError)

# The kind of error of a status, and what to do about it.
_STATUSES = {
    400: ("invalid_request", None),
    401: ("unauthorized", "check OPENROUTER_API_KEY"),
    402: ("out_of_credit", "the key has no credit left"),
    403: ("forbidden", "the key may not use this model, or a filter refused the request"),
    404: (
        "no_endpoint",
        "no provider serves this model with tools under the account's privacy settings",
    ),
    408: ("timeout", None),
    413: ("too_large", "the request is larger than the provider accepts"),
    422: ("invalid_request", None),
    429: ("rate_limited", None),
}


class Cancelled(Exception):
    """The caller was asked to stop and no longer wants the answer."""


class _Transient(ProviderError):
    """A fault that may be gone at the next attempt."""

    retry_after_seconds: float | None = None


@dataclass(frozen=True)
class Privacy:
    """What a request carries besides its messages: opaque ids and the account's privacy terms."""

    session_id: str
    account_ref: str
    zero_data_retention: bool = True


@dataclass
class OpenRouter:
    """A client for one server. ``plain`` omits OpenRouter's own fields."""

    base_url: str
    api_key: str
    plain: bool = False

    def generate(
        self,
        model_id: str,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]],
        privacy: Privacy,
        *,
        deadline: float,
        is_cancelled: Callable[[], bool] = lambda: False,
        max_output_tokens: int = MAX_OUTPUT_TOKENS,
    ) -> Reply:
        """Ask the model for its next message, of at most ``max_output_tokens``.

        ``deadline`` is a ``time.monotonic()`` instant that bounds all attempts together. Raises
        ProviderError, or Cancelled as soon as ``is_cancelled`` returns True.
        """
        body = self._body(model_id, messages, tools, privacy)
        body["max_tokens"] = max_output_tokens

        def attempt() -> Reply:
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                raise ProviderError("the time limit was reached", kind="deadline")
            return self._ask(body, min(seconds, _ATTEMPT_SECONDS), is_cancelled)

        retrying = Retrying(
            stop=stop_after_attempt(MAX_ATTEMPTS),
            retry=retry_if_exception_type(_Transient),
            wait=lambda state: _pause_seconds(state, deadline),
            sleep=lambda seconds: _sleep(seconds, is_cancelled),
            reraise=True,
        )
        return retrying(attempt)

    def context_tokens(self, model_id: str) -> int | None:
        """Return the context length that the server names for the model, or None."""
        try:
            lengths = [each["context_length"] for each in self._listed() if each["id"] == model_id]
        except _NO_CATALOGUE:
            return None
        return lengths[0] if lengths and type(lengths[0]) is int and lengths[0] > 0 else None

    def models(self) -> frozenset[str] | None:
        """Return the ids of the server's models that take tools; None if it lists none."""
        try:
            return frozenset(each["id"] for each in self._listed() if _takes_tools(each)) or None
        except _NO_CATALOGUE:
            return None

    def problem(self) -> str | None:
        """Return why the server cannot be used, or None; it need not have a list of models."""
        try:
            self._catalogue()
        except ProviderError as fault:
            is_problem = fault.http_status is None or fault.http_status in (401, 402, 403)
            return str(fault) if is_problem else None
        return None

    def _listed(self) -> Any:
        return json.loads(self._catalogue())["data"]

    def _catalogue(self) -> bytes:
        exchange = partial(self._exchange, "GET", "/models", _CATALOGUE_SECONDS)
        return _within(_CATALOGUE_SECONDS, lambda: False, exchange)

    # -- one attempt ------------------------------------------------------------------------------

    def _ask(self, body: Any, seconds: float, is_cancelled: Callable[[], bool]) -> Reply:
        exchange = partial(self._exchange, "POST", "/chat/completions", seconds, body)
        try:
            return parse_reply(_within(seconds, is_cancelled, exchange))
        except Unusable as fault:
            raise _Transient(str(fault), kind=fault.kind) from None

    def _exchange(self, method: str, path: str, seconds: float, body: Any = None) -> bytes:
        http = requests.Session()
        # a .netrc would replace the bearer token, a proxy would see the ledger
        http.trust_env = False
        try:
            with http.request(
                method,
                f"{self.base_url}{path}",
                json=body,
                headers=self._headers(),
                timeout=(min(_CONNECT_SECONDS, seconds), seconds),
                allow_redirects=False,
                stream=True,
            ) as response:
                _check_status(response)
                return _read(response)
        except requests.Timeout:
            raise _Transient("the model's server did not answer in time", kind="timeout") from None
        except requests.RequestException as fault:
            message = f"the connection to {self.base_url} failed ({type(fault).__name__})"
            raise _Transient(message, kind="connection") from None

    def _headers(self) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {self.api_key}", "User-Agent": "refine"}
        return headers if self.plain else {**headers, "X-OpenRouter-Metadata": "enabled"}

    def _body(
        self,
        model_id: str,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]],
        privacy: Privacy,
    ) -> dict[str, Any]:
        body: dict[str, Any] = {"model": model_id, "messages": list(messages)}
        body["stream"] = False
        if tools:  # some servers refuse an empty list
            body |= {"tools": list(tools), "tool_choice": "auto"}
        if self.plain:
            return body
        is_zdr = privacy.zero_data_retention
        terms = {"data_collection": "deny", "require_parameters": True, "zdr": is_zdr}
        return {
            **body,
            "provider": terms,
            "plugins": [{"id": "context-compression", "enabled": False}],
            "session_id": privacy.session_id,
            "user": privacy.account_ref,
        }


def _takes_tools(entry: Any) -> bool:
    """Tell whether a model takes tools; assume so if its parameters are not listed."""
    return "tools" in entry.get("supported_parameters", ["tools"])


def _check_status(response: requests.Response) -> None:
    status = response.status_code
    if status == requests.codes.ok:
        return
    # without the body: providers echo prompts in their errors
    unlisted = "provider_error" if status >= 500 else "refused"
    kind, advice = _STATUSES.get(status, (unlisted, None))
    message = f"the model's server answered HTTP {status} ({advice or kind})"
    if status not in _RETRIED_STATUS:
        raise ProviderError(message, kind=kind, http_status=status)
    fault = _Transient(message, kind=kind, http_status=status)
    fault.retry_after_seconds = _retry_after(response)
    raise fault


def _retry_after(response: requests.Response) -> float | None:
    given = response.headers.get("Retry-After", "").strip()
    return float(given) if given.isascii() and given.isdigit() and len(given) < 9 else None


def _read(response: requests.Response) -> bytes:
    body = bytearray()
    for chunk in response.iter_content(64 * 1024):
        body += chunk
        if len(body) > MAX_REPLY_BYTES:
            raise ProviderError("the model's answer is too large", kind="too_large")
    return bytes(body)


def _within(seconds: float, is_cancelled: Callable[[], bool], work: Callable[[], bytes]) -> bytes:
    """Run ``work`` in its own thread, for at most ``seconds``.

    A socket's timeout starts again with every byte, so a slow drip would never end, and a session
    that waits for its model could not be stopped. An abandoned thread ends with its socket.
    """
    done: queue.SimpleQueue[bytes | BaseException] = queue.SimpleQueue()

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
                raise _Transient("the model did not answer in time", kind="timeout") from None
            continue
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome
    raise Cancelled


def _pause_seconds(state: RetryCallState, deadline: float) -> float:
    """Return the pause before the next attempt; raise the fault if there is no time for it."""
    fault = state.outcome.exception() if state.outcome is not None else None
    seconds = _BACKOFF_SECONDS[min(state.attempt_number, len(_BACKOFF_SECONDS)) - 1]
    if isinstance(fault, _Transient) and fault.retry_after_seconds is not None:
        seconds = fault.retry_after_seconds
    is_too_long = seconds > MAX_RETRY_AFTER_SECONDS or time.monotonic() + seconds >= deadline
    if fault is not None and is_too_long:
        raise fault
    return seconds


def _sleep(seconds: float, is_cancelled: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if is_cancelled():
            raise Cancelled
        time.sleep(min(left, _POLL_SECONDS))
