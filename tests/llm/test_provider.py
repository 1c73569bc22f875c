"""A provider over plain HTTP, against a real server: requests, retries, deadlines, secrecy."""

import json
import socket
import time
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from refine.errors import ProviderError
from refine.llm import provider
from refine.llm.dialects import OPENROUTER, PLAIN, Dialect
from refine.llm.exchange import Cancelled
from refine.llm.messages import Privacy, Reply, user_message
from refine.llm.provider import Provider
from tests.providers.faults import silence
from tests.scripted_model import ScriptedModel, send

KEY = "sk-or-of-the-tests"
MODEL = "test/model"
MESSAGES = [{"role": "system", "content": "You are Wren."}, user_message("Do you consent?")]
TOOLS = [{"type": "function", "function": {"name": "refinement", "parameters": {}}}]
PRIVACY = Privacy(session_id="session-1", account_ref="account-1")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "_BACKOFF_SECONDS", (0.0, 0.0))


def ask(
    model: ScriptedModel | str,
    *,
    seconds: float = 30,
    dialect: Dialect = OPENROUTER,
    messages: list[dict[str, Any]] | None = None,
    privacy: Privacy = PRIVACY,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Reply:
    base_url = model if isinstance(model, str) else model.base_url
    return Provider(base_url, KEY, dialect).generate(
        MODEL,
        MESSAGES if messages is None else messages,
        TOOLS,
        privacy,
        deadline=time.monotonic() + seconds,
        is_cancelled=is_cancelled,
    )


def fault_of(model: ScriptedModel | str, **options: Any) -> ProviderError:
    with pytest.raises(ProviderError) as fault:
        ask(model, **options)
    return fault.value


def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


# -- requests -------------------------------------------------------------------------------------

COMMON_BODY = {
    "model": "test/model",
    "messages": MESSAGES,
    "tools": TOOLS,
    "tool_choice": "auto",
    "stream": False,
}


@pytest.mark.parametrize("zero_data_retention", [True, False])
def test_every_attempt_sends_exactly_this(model, zero_data_retention):
    model.http(500).http(502).say("YES")

    ask(model, privacy=Privacy("session-1", "account-1", zero_data_retention=zero_data_retention))

    privacy = {"data_collection": "deny", "require_parameters": True, "zdr": zero_data_retention}
    body = {
        **COMMON_BODY,
        "max_completion_tokens": 8_192,
        "provider": privacy,
        "plugins": [{"id": "context-compression", "enabled": False}],
        "session_id": "session-1",
        "user": "account-1",
    }
    assert model.requests == [body] * 3
    for sent in model.headers:
        headers = {name.lower(): value for name, value in sent.items()}
        assert headers["authorization"] == f"Bearer {KEY}"
        assert headers["user-agent"] == "refine"
        assert headers["x-openrouter-metadata"] == "enabled"
        assert not headers.keys() & {"http-referer", "x-title", "x-openrouter-title", "cookie"}


def test_a_plain_server_gets_no_field_of_openrouter(model):
    model.say("YES")

    ask(model, dialect=PLAIN)

    assert model.requests == [{**COMMON_BODY, "max_tokens": 8_192}]
    assert not [name for name in model.headers[0] if name.lower().startswith("x-")]


def test_a_netrc_file_does_not_replace_the_key(model, tmp_path, monkeypatch):
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login canary password canary\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    model.say("YES")

    ask(model)

    assert model.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_proxies_of_the_environment_are_ignored(model, monkeypatch):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    model.say("YES")

    assert ask(model).text == "YES"


# -- retries --------------------------------------------------------------------------------------


def test_a_refusal_says_what_to_do(model):
    for status, dialect, advice in (
        (401, OPENROUTER, "check OPENROUTER_API_KEY"),
        (404, OPENROUTER, "under the account's privacy settings"),
        (404, PLAIN, "check its name and OPENROUTER_BASE_URL"),
    ):
        model.http(status)
        fault = fault_of(model, dialect=dialect)
        assert fault.http_status == status
        assert f"HTTP {status}" in str(fault)
        assert advice in str(fault), (status, dialect.name)


def test_an_unreachable_server_is_named_by_its_address():
    base_url = f"http://127.0.0.1:{closed_port()}/v1"

    fault = fault_of(base_url)

    assert fault.kind == "connection"
    assert base_url in str(fault)


def test_a_reply_may_be_as_large_as_the_tokens_that_were_asked_for(model):
    answer = json.dumps({"choices": [{"message": {"content": "YES"}}]}).encode()
    most = 1_048_576 + 64 * 8_192
    model.answer(lambda handler: send(handler, 200, answer.ljust(most)))
    model.answer(lambda handler: send(handler, 200, answer.ljust(most + 1)))

    assert ask(model).text == "YES"
    assert fault_of(model).kind == "too_large"
    assert len(model.requests) == 2


# -- pauses ---------------------------------------------------------------------------------------


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, noted instead of waited for."""
    noted: list[float] = []
    monkeypatch.setattr(provider, "_BACKOFF_SECONDS", (0.5, 2.0))
    monkeypatch.setattr(provider, "_sleep", lambda seconds, _cancelled: noted.append(seconds))
    return noted


def test_pauses_grow_or_follow_retry_after(model, pauses):
    model.http(500).http(500).http(500)
    fault_of(model, seconds=1_000)
    for status in (429, 503):
        model.http(status, Retry_After="60").http(status, Retry_After="0").say("YES")
        assert ask(model, seconds=1_000).text == "YES"

    assert pauses == [0.5, 2.0, 60, 0, 60, 0]


def test_retry_after_beyond_a_minute_or_the_deadline_ends_the_attempts(model, pauses):
    for retry_after, seconds in (
        *(("61", 10**9), ("60.1", 10**9), ("9" * 5_000, 10**9), ("60", 30)),
        ("Wed, 21 Oct 2099 07:28:00 GMT", 10**9),
    ):
        model.http(429, Retry_After=retry_after)
        assert fault_of(model, seconds=seconds).kind == "rate_limited", retry_after

    assert len(model.requests) == 5
    assert pauses == []


def test_retry_after_may_have_decimals_or_be_a_date_by_the_servers_own_clock(model, pauses):
    others = ["", "soon", "-1", "1,5", "1e3", "nan", "inf", "²", "Wed, 99 Oct 2099 07:28:00 GMT"]
    for retry_after in (
        *("1.5", "0.25", "Sun, 21 Oct 2035 07:28:07 GMT", "Sunday, 21-Oct-35 07:28:07 GMT"),
        *("Sun Oct 21 07:28:07 2035", "Sun, 21 Oct 2035 07:27:59 GMT", *others),
    ):
        model.answer(partial(refuse_on_a_date, retry_after=retry_after)).say("YES")
        assert ask(model, seconds=1_000).text == "YES", retry_after

    assert pauses == [1.5, 0.25, 7, 7, 7, 0.5, *[0.5] * len(others)]


def refuse_on_a_date(handler: BaseHTTPRequestHandler, retry_after: str) -> None:
    handler.date_time_string = lambda *_: "Sun, 21 Oct 2035 07:28:00 GMT"  # type: ignore[method-assign]
    send(handler, 429, {}, {"Retry-After": retry_after})


# -- the deadline ---------------------------------------------------------------------------------


def test_the_deadline_covers_all_attempts_together(model, monkeypatch):
    monkeypatch.setattr(provider, "_ATTEMPT_SECONDS", 0.4)
    for _ in range(3):
        model.answer(silence())

    fault = fault_of(model, seconds=0.6)

    assert fault.kind == "timeout"
    assert len(model.requests) == 2


def test_nothing_is_sent_after_the_deadline(model):
    for seconds in (0, -1):
        assert fault_of(model, seconds=seconds).kind == "deadline"

    assert model.requests == []


# -- stopping -------------------------------------------------------------------------------------


def test_a_stop_is_noticed_between_attempts(model):
    answered_at: list[float] = []

    def busy(handler: BaseHTTPRequestHandler) -> None:
        send(handler, 429, {}, {"Retry-After": "25"})
        answered_at.append(time.monotonic())

    model.answer(busy)
    began = time.monotonic()
    with pytest.raises(Cancelled):
        # half a second after the answer was sent, the client is pausing
        ask(model, is_cancelled=lambda: any(time.monotonic() - at > 0.5 for at in answered_at))

    assert len(model.requests) == 1
    assert time.monotonic() - began < 15


# -- the catalogue --------------------------------------------------------------------------------


def test_a_catalogue_that_cannot_be_had_is_empty(model):
    location = {"Location": f"{model.base_url}/models"}
    for status in (307, 401, 404, 429, 500):
        model.catalogue = lambda handler, status=status: send(
            handler, status, {"data": [{"id": "test/model"}]}, location
        )
        assert not Provider(model.base_url, KEY).catalogue, status
    assert not Provider(f"http://127.0.0.1:{closed_port()}/v1", KEY).catalogue


def test_the_output_limit_is_one_that_the_model_takes(model):
    for parameters, limit in (
        (["tools", "max_tokens", "max_completion_tokens"], "max_completion_tokens"),
        (["tools", "max_tokens"], "max_tokens"),
        (["tools"], "max_completion_tokens"),
        (None, "max_completion_tokens"),
    ):
        model.catalogue = [{"id": MODEL, "supported_parameters": parameters}]
        model.say("YES")
        ask(model)
        sent = model.requests[-1].keys() & {"max_tokens", "max_completion_tokens"}
        assert sent == {limit}, parameters
