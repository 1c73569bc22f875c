"""A provider of models: calls, retried because nothing was executed yet, its list of models, and
which provider answers for an agent.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from refine.errors import InvalidValue, ProviderError
from refine.llm import dialects, rehearsal
from refine.llm.catalogue import Catalogue, parse_catalogue
from refine.llm.dialects import OPENROUTER, Dialect
from refine.llm.exchange import Cancelled, Request, exchange
from refine.llm.messages import CallFailed, Message, Privacy, Reply
from refine.llm.replies import most_bytes, parse_reply
from refine.rules.model_names import is_rehearsal_model, names_one_model
from refine.rules.prices import Usage
from refine.rules.tokens import MAX_OUTPUT_TOKENS
from refine.settings import Settings

MAX_RETRY_AFTER_SECONDS = 60.0

# so that one attempt never uses up the time of a session
_ATTEMPT_SECONDS = 300.0
_CATALOGUE_SECONDS = 5.0
_MAX_CATALOGUE_BYTES = 16 * 1024 * 1024
_BACKOFF_SECONDS = (0.5, 2.0)
MAX_ATTEMPTS = len(_BACKOFF_SECONDS) + 1
_CANCEL_POLL_SECONDS = 0.2
# The kinds of error that another key would avoid.
_KINDS_OF_KEY = ("unauthorized", "out_of_credit", "forbidden")


@dataclass
class Provider:
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
        tool_choice: Literal["auto", "none"] = "auto",
        on_wasted_usage: Callable[[Usage], None] = lambda _: None,
    ) -> Reply:
        """Ask the model for its next message, of at most ``max_output_tokens``.

        ``deadline`` is a ``time.monotonic()`` instant that bounds all attempts together. Raises
        ProviderError, or Cancelled as soon as ``is_cancelled`` returns True. ``on_wasted_usage`` is
        given the usage of each attempt that may be billed, although nothing can be used of it.
        """
        body: dict[str, Any] = {"model": model_id, "messages": list(messages), "stream": False}
        body |= self.dialect.own_fields(model_id, privacy)
        body[self._output_limit(model_id)] = max_output_tokens
        if tools:  # some servers refuse an empty list
            body |= {"tools": list(tools), "tool_choice": tool_choice}
        pauses = iter(_BACKOFF_SECONDS)
        while True:
            try:
                return self._attempt(body, deadline, is_cancelled, most_bytes(max_output_tokens))
            except Cancelled:
                on_wasted_usage(Usage())
                raise
            except CallFailed as fault:
                if fault.usage is not None:
                    on_wasted_usage(fault.usage)
                seconds = _pause_seconds(fault, next(pauses, None), deadline)
            _sleep(seconds, is_cancelled)

    def _attempt(
        self, body: Any, deadline: float, is_cancelled: Callable[[], bool], max_bytes: int
    ) -> Reply:
        seconds = min(deadline - time.monotonic(), _ATTEMPT_SECONDS)
        if seconds <= 0:
            raise ProviderError("the time limit was reached", kind="deadline")
        request = self._request("/chat/completions", body)
        return exchange(request, seconds, is_cancelled, max_bytes=max_bytes, read=self._parse)

    def _parse(self, body: bytes, headers: Mapping[str, str]) -> Reply:
        return parse_reply(body, self.dialect, headers)

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
            read=lambda body, _headers: body,
        )

    def _request(self, path: str, body: Any = None) -> Request:
        common = {"Authorization": f"Bearer {self.api_key}", "User-Agent": "refine"}
        headers = common | dict(self.dialect.headers)
        return Request(self.base_url, path, self.dialect, headers, body)

    def _output_limit(self, model_id: str) -> str:
        listed = self.catalogue.find(model_id) if self.dialect.limits_in_list else None
        names = (self.dialect.output_limit, "max_tokens")
        return next((name for name in names if listed and name in listed.parameters), names[0])


def _pause_seconds(fault: CallFailed, usual_seconds: float | None, deadline: float) -> float:
    """Return the pause before the next attempt; raise the fault if there is none, or no time."""
    if not fault.is_transient or usual_seconds is None:
        raise fault
    asked_for = fault.retry_after_seconds
    seconds = usual_seconds if asked_for is None else asked_for
    if seconds > MAX_RETRY_AFTER_SECONDS or time.monotonic() + seconds >= deadline:
        raise fault
    return seconds


def _sleep(seconds: float, is_cancelled: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if is_cancelled():
            raise Cancelled
        time.sleep(min(left, _CANCEL_POLL_SECONDS))


# -- which one answers for an agent ----------------------------------------------------------------


_NOT_REHEARSED = (
    "the rehearsal model answers only agents of the demo account; give this agent a model of your "
    "provider (without a provider, REFINE_REHEARSAL=1 rehearses every account)"
)
_NOT_ONE_MODEL = (
    "model_id must name one model, as author/model, so that nobody else reads what is sent: no "
    "preset, router or alias of OpenRouter, and of its variants only those that search nothing "
    "(for a server of another kind, set REFINE_DIALECT or REFINE_PLAIN_OPENAI=1)"
)
_NO_KEY = (
    "no API key: set OPENROUTER_API_KEY on the server (any value, if your model server needs none)"
)


def is_rehearsed(model_id: str, settings: Settings, *, is_demo: bool) -> bool:
    return is_rehearsal_model(model_id) and settings.rehearses(is_demo=is_demo)


def dialect_of(settings: Settings) -> Dialect:
    """Return the dialect that the settings name, or that of the host; else OpenRouter's."""
    if settings.plain_openai:
        return dialects.PLAIN
    if settings.dialect is not None:
        return dialects.named(settings.dialect)
    return dialects.at(settings.openrouter_base_url) or OPENROUTER


def require_one_model(model_id: str, settings: Settings) -> None:
    """Raise InvalidValue for a name at OpenRouter that can mean several models."""
    if not _may_be_sent(model_id, settings):
        raise InvalidValue(_NOT_ONE_MODEL)


def _may_be_sent(model_id: str, settings: Settings) -> bool:
    of_host = dialects.at(settings.openrouter_base_url)
    at_openrouter = OPENROUTER.name == settings.dialect or of_host is OPENROUTER
    if is_rehearsal_model(model_id) or not (at_openrouter or dialect_of(settings) is OPENROUTER):
        return True
    return names_one_model(model_id, at_openrouter=at_openrouter)


def configured_provider(settings: Settings) -> Provider | None:
    if (key := settings.openrouter_api_key) is None:
        return None
    return Provider(settings.openrouter_base_url, key, dialect_of(settings))


def warning_about(model_id: str, settings: Settings, *, is_demo: bool) -> str | None:
    """Return why sessions with this model would fail, by the provider's list, or None."""
    if is_rehearsal_model(model_id):
        offered = is_rehearsed(model_id, settings, is_demo=is_demo)
        return None if offered else _NOT_REHEARSED
    provider = configured_provider(settings)
    if provider is None or not provider.catalogue:
        return None
    listed = provider.catalogue.find(model_id)
    if listed is None:
        return f"the provider lists no model {model_id[:100]!r}"
    return None if listed.takes_tools else f"the provider lists {model_id!r} without tools"


@contextmanager
def client_for(model_id: str, settings: Settings, *, is_demo: bool) -> Iterator[Provider]:
    if is_rehearsed(model_id, settings, is_demo=is_demo):
        with rehearsal.serving() as base_url:
            yield Provider(base_url, api_key="rehearsal")
        return
    if is_rehearsal_model(model_id):
        raise ProviderError(_NOT_REHEARSED, kind="no_rehearsal")
    provider = configured_provider(settings)
    if provider is None:
        raise ProviderError(_NO_KEY, kind="no_key")
    if not _may_be_sent(model_id, settings):  # saved before, or under other settings
        raise ProviderError(_NOT_ONE_MODEL, kind="model_name")
    yield provider
