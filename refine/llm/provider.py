"""A provider of models: one call to one of them, or a ProviderError; and its list of models.

A failed HTTP call is retried here, because nothing was executed yet: at most three attempts within
the caller's deadline. Callers only see a Reply or an error.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from refine.errors import ProviderError
from refine.llm.catalogue import Catalogue, parse_catalogue
from refine.llm.dialects import OPENROUTER, Dialect
from refine.llm.exchange import Answer, Cancelled, Request, Transient, exchange
from refine.llm.messages import Message, Privacy, Reply, Usage
from refine.llm.replies import Unusable, most_bytes, parse_reply, usage_of_unusable
from refine.rules.tokens import MAX_OUTPUT_TOKENS

MAX_ATTEMPTS = 3
MAX_RETRY_AFTER_SECONDS = 60.0

# so that one attempt never uses up the time of a session
_ATTEMPT_SECONDS = 300.0
_CATALOGUE_SECONDS = 5.0
_MAX_CATALOGUE_BYTES = 16 * 1024 * 1024
_BACKOFF_SECONDS = (0.5, 2.0)
_CANCEL_POLL_SECONDS = 0.2
# The kinds of error that another key would avoid.
_KINDS_OF_KEY = ("unauthorized", "out_of_credit", "forbidden")

ToolChoice = Literal["auto", "none"]
OnWastedUsage = Callable[[Usage], None]


class _FailedAttempt(NamedTuple):
    """An answer that cannot be used, and what it took; None if it is not billed."""

    fault: ProviderError
    usage: Usage | None


@dataclass
class Provider:
    """A client for one server, which speaks one dialect."""

    base_url: str
    api_key: str
    dialect: Dialect = OPENROUTER

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
        tool_choice: ToolChoice = "auto",
        on_wasted_usage: OnWastedUsage = lambda _: None,
    ) -> Reply:
        """Ask the model for its next message, of at most ``max_output_tokens``.

        ``deadline`` is a ``time.monotonic()`` instant that bounds all attempts together. Raises
        ProviderError, or Cancelled as soon as ``is_cancelled`` returns True. ``on_wasted_usage`` is
        given the usage of each attempt that may be billed, although nothing can be used of it.
        """
        body = self._body(model_id, messages, tools, privacy, tool_choice)
        body[self._output_limit(model_id)] = max_output_tokens

        def attempt() -> Reply:
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                raise ProviderError("the time limit was reached", kind="deadline")
            seconds = min(seconds, _ATTEMPT_SECONDS)
            return self._ask(
                body, seconds, is_cancelled, on_wasted_usage, most_bytes(max_output_tokens)
            )

        retrying = Retrying(
            stop=stop_after_attempt(MAX_ATTEMPTS),
            retry=retry_if_exception_type(Transient),
            wait=lambda state: _pause_seconds(state, deadline),
            sleep=lambda seconds: _sleep(seconds, is_cancelled),
            reraise=True,
        )
        return retrying(attempt)

    @cached_property
    def catalogue(self) -> Catalogue:
        """The provider's list of models, asked for once; empty where it cannot be had."""
        try:
            return parse_catalogue(self._listed())
        except ProviderError:
            return Catalogue(())

    def problem(self) -> str | None:
        """Return why the server cannot be used, or None; it need not have a list of models."""
        try:
            self._listed()
        except ProviderError as fault:
            is_problem = fault.http_status is None or fault.kind in _KINDS_OF_KEY
            return str(fault) if is_problem else None
        return None

    def _listed(self) -> bytes:
        return exchange(
            self._request(self.dialect.list_path),
            _CATALOGUE_SECONDS,
            max_bytes=_MAX_CATALOGUE_BYTES,
            read=lambda answer: answer.body,
        )

    # -- one attempt ------------------------------------------------------------------------------

    def _ask(
        self,
        body: Any,
        seconds: float,
        is_cancelled: Callable[[], bool],
        on_wasted_usage: OnWastedUsage,
        max_bytes: int,
    ) -> Reply:
        request = self._request("/chat/completions", body)
        try:
            read = exchange(request, seconds, is_cancelled, max_bytes=max_bytes, read=self._read)
        except (ProviderError, Cancelled) as fault:
            if isinstance(fault, Cancelled) or fault.may_be_billed:
                on_wasted_usage(Usage())
            raise
        if isinstance(read, Reply):
            return read
        if read.usage is not None:
            on_wasted_usage(read.usage)
        raise read.fault

    def _read(self, answer: Answer) -> "Reply | _FailedAttempt":
        try:
            return parse_reply(answer.body, self.dialect, answer.headers)
        except Unusable as fault:
            return self._failed_attempt(answer, Transient(str(fault), kind=fault.kind))
        except ProviderError as fault:
            return self._failed_attempt(answer, fault)

    def _failed_attempt(self, answer: Answer, fault: ProviderError) -> "_FailedAttempt":
        return _FailedAttempt(fault, usage_of_unusable(answer.body, self.dialect, answer.headers))

    def _request(self, path: str, body: Any = None) -> Request:
        common = {"Authorization": f"Bearer {self.api_key}", "User-Agent": "refine"}
        headers = common | dict(self.dialect.headers)
        return Request(self.base_url, path, self.dialect, headers, body)

    def _output_limit(self, model_id: str) -> str:
        """Return the name of the output limit: as the model's entry in the list has it, if any."""
        listed = self.catalogue.find(model_id) if self.dialect.limits_in_list else None
        names = (self.dialect.output_limit, "max_tokens")
        return next((name for name in names if listed and name in listed.parameters), names[0])

    def _body(
        self,
        model_id: str,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]],
        privacy: Privacy,
        tool_choice: ToolChoice,
    ) -> dict[str, Any]:
        body: dict[str, Any] = {"model": model_id, "messages": list(messages), "stream": False}
        if tools:  # some servers refuse an empty list
            body |= {"tools": list(tools), "tool_choice": tool_choice}
        return body | self.dialect.own_fields(model_id, privacy)


def _pause_seconds(state: RetryCallState, deadline: float) -> float:
    """Return the pause before the next attempt; raise the fault if there is no time for it."""
    fault = state.outcome.exception() if state.outcome is not None else None
    seconds = _BACKOFF_SECONDS[min(state.attempt_number, len(_BACKOFF_SECONDS)) - 1]
    if isinstance(fault, Transient) and fault.retry_after_seconds is not None:
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
        time.sleep(min(left, _CANCEL_POLL_SECONDS))
