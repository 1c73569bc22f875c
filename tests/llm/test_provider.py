"""A provider over plain HTTP, against a real server: requests, retries, deadlines, secrecy."""

import json
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from refine.errors import ProviderError
from refine.llm import dialects, provider
from refine.llm.catalogue import Catalogue
from refine.llm.dialects import DIALECTS, OPENROUTER, PLAIN, Dialect
from refine.llm.exchange import Cancelled
from refine.llm.messages import Privacy, Reply, user_message
from refine.llm.provider import Provider
from tests.scripted_model import Answer, ScriptedModel, send

KEY = "sk-or-of-the-tests"
MODEL = "test/model"
MESSAGES = [{"role": "system", "content": "You are Wren."}, user_message("Do you consent?")]
TOOLS = [{"type": "function", "function": {"name": "refinement", "parameters": {}}}]
PRIVACY = Privacy(session_id="session-1", account_ref="account-1")

FINAL = {
    400: ("invalid_request", "invalid_request"),
    401: ("unauthorized", "OPENROUTER_API_KEY"),
    402: ("out_of_credit", "no credit"),
    403: ("forbidden", "may not use this model"),
    404: ("no_endpoint", "privacy settings"),
    409: ("refused", "refused"),
    413: ("too_large", "larger than the provider accepts"),
    422: ("invalid_request", "invalid_request"),
    **dict.fromkeys((204, 301, 302, 303, 307, 308), ("refused", "refused")),
}
RETRIED = {
    408: ("timeout", "timeout"),
    429: ("rate_limited", "rate_limited"),
    **dict.fromkeys((500, 502, 503, 504, 524, 529), ("provider_error", "provider_error")),
}
FAULTS_INSIDE_200 = {
    "error": ({"error": {"code": 502, "message": "canary"}}, "provider_error"),
    "error of the choice": (
        {"choices": [{"error": {"message": "canary"}, "message": {"content": "YES"}}]},
        "provider_error",
    ),
    "finished by an error": (
        {"choices": [{"finish_reason": "error", "message": {"content": "canary"}}]},
        "provider_error",
    ),
    "no choices": ({"choices": []}, "empty_reply"),
    "null choices": ({"choices": None}, "empty_reply"),
    "no message": ({"choices": [{"finish_reason": "stop"}]}, "empty_reply"),
    "no json": (b"<html>canary</html>", "invalid_reply"),
    "nothing": (b"", "invalid_reply"),
}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "_BACKOFF_SECONDS", (0.0, 0.0))


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Set at the end of the test; servers may stay silent until then."""
    event = threading.Event()
    yield event
    event.set()


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


def seconds_since(began: float) -> float:
    return time.monotonic() - began


def cut_in_mid_body(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [{"message": {"content": "canary')
    hang_up(handler)


def cut_in_mid_chunk(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b'400\r\n{"choices": [{"message": {"content": "canary')
    hang_up(handler)


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def silence(released: threading.Event) -> Answer:
    def silent(handler: BaseHTTPRequestHandler) -> None:
        released.wait(30)
        handler.close_connection = True

    return silent


def drip(released: threading.Event, *, pause_seconds: float = 0.1) -> Answer:
    """Send a byte now and then: each one restarts a socket's timeout."""

    def dripping(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        while not released.wait(pause_seconds):
            handler.wfile.write(b"\n")
            handler.wfile.flush()
        handler.close_connection = True

    return dripping


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
def test_the_body_is_exactly_this(model: ScriptedModel, zero_data_retention: bool) -> None:
    model.say("YES")

    ask(model, privacy=Privacy("session-1", "account-1", zero_data_retention=zero_data_retention))

    privacy = {"data_collection": "deny", "require_parameters": True, "zdr": zero_data_retention}
    assert model.requests == [
        {
            **COMMON_BODY,
            "max_completion_tokens": 8_192,
            "provider": privacy,
            "plugins": [{"id": "context-compression", "enabled": False}],
            "session_id": "session-1",
            "user": "account-1",
        }
    ]


def test_a_plain_server_gets_none_of_openrouters_fields(model: ScriptedModel) -> None:
    model.say("YES")

    ask(model, dialect=PLAIN)

    assert model.requests == [{**COMMON_BODY, "max_tokens": 8_192}]
    assert not [name for name in model.headers[0] if name.lower().startswith("x-")]


def test_the_headers_hold_the_key_and_identify_nobody(model: ScriptedModel) -> None:
    model.say("YES")

    ask(model)

    headers = {name.lower(): value for name, value in model.headers[0].items()}
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["content-type"] == "application/json"
    assert headers["user-agent"] == "refine"
    assert headers["x-openrouter-metadata"] == "enabled"
    assert not headers.keys() & {"http-referer", "x-title", "x-openrouter-title", "cookie"}


def test_every_attempt_sends_the_same(model: ScriptedModel) -> None:
    model.http(500).http(502).say("YES")

    ask(model)

    assert model.requests == [model.requests[0]] * 3
    assert {headers["Authorization"] for headers in model.headers} == {f"Bearer {KEY}"}


def test_redirects_are_not_followed(model: ScriptedModel) -> None:
    for requests_made, status in enumerate((301, 302, 303, 307, 308), 1):
        model.http(status, Location=f"{model.base_url}/chat/completions")

        fault = fault_of(model)

        assert len(model.requests) == requests_made, status
        assert (fault.kind, fault.http_status) == ("refused", status)


@pytest.mark.parametrize("variable", ["NETRC", "HOME"])
def test_a_netrc_file_does_not_replace_the_key(
    model: ScriptedModel, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login canary password canary\n")
    netrc.chmod(0o600)
    monkeypatch.delenv("NETRC", raising=False)
    monkeypatch.setenv(variable, str(netrc if variable == "NETRC" else tmp_path))
    model.say("YES")

    ask(model)

    assert model.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_proxies_of_the_environment_are_ignored(
    model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    model.say("YES")

    assert ask(model).text == "YES"


# -- retries --------------------------------------------------------------------------------------


def test_a_transient_status_is_retried_up_to_three_times(model: ScriptedModel) -> None:
    for status, (kind, advice) in RETRIED.items():
        model.http(status).say("YES")
        assert ask(model).text == "YES", status

        sent = len(model.requests)
        model.http(status).http(status).http(status)
        fault = fault_of(model)

        assert len(model.requests) - sent == 3, status
        assert (fault.kind, fault.http_status) == (kind, status)
        assert f"HTTP {status}" in str(fault)
        assert advice in str(fault)


def test_any_other_status_is_final_and_says_what_to_do(model: ScriptedModel) -> None:
    for requests_made, (status, (kind, advice)) in enumerate(FINAL.items(), 1):
        model.http(status)

        fault = fault_of(model)

        assert len(model.requests) == requests_made, status
        assert (fault.kind, fault.http_status) == (kind, status)
        assert f"HTTP {status}" in str(fault)
        assert advice in str(fault)


def test_only_openrouter_speaks_of_privacy_settings_where_a_model_is_not_found(
    model: ScriptedModel,
) -> None:
    for dialect in DIALECTS:
        model.http(404)

        said = str(fault_of(model, dialect=dialect))

        is_openrouters = dialect is OPENROUTER
        assert ("privacy settings" in said) == is_openrouters, dialect.name
        assert ("check its name and OPENROUTER_BASE_URL" in said) != is_openrouters, dialect.name


def test_a_fault_inside_a_200_is_retried_and_named_if_it_stays(model: ScriptedModel) -> None:
    for name, (body, kind) in FAULTS_INSIDE_200.items():

        def faulty(handler: BaseHTTPRequestHandler, body: Any = body) -> None:
            send(handler, 200, body)

        model.answer(faulty).say("YES")
        assert ask(model).text == "YES", name

        model.answer(faulty).answer(faulty).answer(faulty)
        fault = fault_of(model)
        assert (fault.kind, fault.http_status) == (kind, None), name


@pytest.mark.parametrize("cut", [cut_in_mid_body, cut_in_mid_chunk, hang_up])
def test_a_broken_connection_is_retried_up_to_three_times(
    model: ScriptedModel, cut: Answer
) -> None:
    model.answer(cut).say("YES")
    assert ask(model).text == "YES"

    model.answer(cut).answer(cut).answer(cut)
    assert fault_of(model).kind == "connection"
    assert len(model.requests) == 2 + 3


def test_an_unreachable_server_is_named_by_its_address() -> None:
    base_url = f"http://127.0.0.1:{closed_port()}/v1"

    fault = fault_of(base_url)

    assert fault.kind == "connection"
    assert base_url in str(fault)


def test_a_reply_may_be_as_large_as_the_tokens_that_were_asked_for(model: ScriptedModel) -> None:
    answer = json.dumps({"choices": [{"message": {"content": "YES"}}]}).encode()
    most = 1_048_576 + 64 * 8_192
    model.answer(lambda handler: send(handler, 200, answer.ljust(most)))
    model.answer(lambda handler: send(handler, 200, answer.ljust(most + 1)))

    assert ask(model).text == "YES"
    assert fault_of(model).kind == "too_large"
    assert len(model.requests) == 2


def test_a_request_that_was_altered_on_its_way_is_not_retried(model: ScriptedModel) -> None:
    for stage in ({"type": "guardrail"}, {"name": "context-compression"}):
        model.say("YES", openrouter_metadata={"pipeline": [stage]})
        assert fault_of(model).kind == "altered_prompt", stage

    assert len(model.requests) == 2


# -- pauses ---------------------------------------------------------------------------------------


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, noted instead of waited for."""
    noted: list[float] = []
    monkeypatch.setattr(provider, "_BACKOFF_SECONDS", (0.5, 2.0))
    monkeypatch.setattr(provider, "_sleep", lambda seconds, _cancelled: noted.append(seconds))
    return noted


def test_pauses_grow_or_follow_retry_after(model: ScriptedModel, pauses: list[float]) -> None:
    model.http(500).http(500).http(500)
    fault_of(model, seconds=1_000)
    for status in (429, 503):
        model.http(status, Retry_After="60").http(status, Retry_After="0").say("YES")
        assert ask(model, seconds=1_000).text == "YES"

    assert pauses == [0.5, 2.0, 60, 0, 60, 0]


def test_litellm_passes_on_how_long_the_upstream_wants_to_be_left_alone(
    model: ScriptedModel, pauses: list[float]
) -> None:
    passed_on = {"llm_provider-retry-after": "7"}
    for name, headers in (
        ("litellm", passed_on),
        ("litellm", {**passed_on, "Retry-After": "9"}),
        ("plain", passed_on),
    ):
        model.answer(lambda handler, sent=headers: send(handler, 429, {}, sent)).say("YES")
        ask(model, seconds=1_000, dialect=dialects.named(name))

    assert pauses == [7, 9, 0.5]


def test_retry_after_beyond_a_minute_or_the_deadline_ends_the_attempts(
    model: ScriptedModel, pauses: list[float]
) -> None:
    dates = [("Wed, 21 Oct 2099 07:28:00 GMT", 10**9)]
    for retry_after, seconds in (
        *(("61", 10**9), ("60.1", 10**9), ("9" * 9, 10**9), ("9" * 5_000, 10**9), ("60", 30)),
        *dates,
    ):
        model.http(429, Retry_After=retry_after)
        assert fault_of(model, seconds=seconds).kind == "rate_limited", retry_after

    assert len(model.requests) == 6
    assert pauses == []


def test_retry_after_may_have_decimals_or_be_a_date_by_the_servers_own_clock(
    model: ScriptedModel, pauses: list[float]
) -> None:
    for retry_after in (
        *("1.5", "0.25", "Sun, 21 Oct 2035 07:28:07 GMT", "Sunday, 21-Oct-35 07:28:07 GMT"),
        *("Sun Oct 21 07:28:07 2035", "Sun, 21 Oct 2035 07:27:59 GMT"),
    ):
        model.answer(partial(refuse_on_a_date, retry_after=retry_after)).say("YES")
        assert ask(model, seconds=1_000).text == "YES", retry_after

    assert pauses == [1.5, 0.25, 7, 7, 7, 0.5]


def refuse_on_a_date(handler: BaseHTTPRequestHandler, retry_after: str) -> None:
    handler.date_time_string = lambda *_: "Sun, 21 Oct 2035 07:28:00 GMT"  # type: ignore[method-assign]
    send(handler, 429, {}, {"Retry-After": retry_after})


def test_a_retry_after_that_is_neither_seconds_nor_a_date_is_ignored(
    model: ScriptedModel, pauses: list[float]
) -> None:
    others = ["", "soon", "-1", "1,5", "1e3", "nan", "inf", "²", "Wed, 99 Oct 2099 07:28:00 GMT"]
    for retry_after in others:
        model.http(429, Retry_After=retry_after).say("YES")
        assert ask(model).text == "YES", retry_after

    assert pauses == [0.5] * len(others)


# -- the deadline ---------------------------------------------------------------------------------


def test_the_deadline_covers_all_attempts_together(
    model: ScriptedModel, monkeypatch: pytest.MonkeyPatch, released: threading.Event
) -> None:
    monkeypatch.setattr(provider, "_ATTEMPT_SECONDS", 0.4)
    for _ in range(3):
        model.answer(silence(released))

    fault = fault_of(model, seconds=0.6)

    assert fault.kind == "timeout"
    assert len(model.requests) == 2


def test_nothing_is_sent_after_the_deadline(model: ScriptedModel) -> None:
    for seconds in (0, -1):
        assert fault_of(model, seconds=seconds).kind == "deadline"

    assert model.requests == []


# -- stopping -------------------------------------------------------------------------------------


def test_a_stop_is_noticed_between_attempts(model: ScriptedModel) -> None:
    answered_at: list[float] = []

    def busy(handler: BaseHTTPRequestHandler) -> None:
        send(handler, 429, {}, {"Retry-After": "25"})
        answered_at.append(time.monotonic())

    model.answer(busy)
    began = time.monotonic()

    with pytest.raises(Cancelled):
        # half a second after the answer was sent, the client is pausing
        ask(model, is_cancelled=lambda: any(seconds_since(at) > 0.5 for at in answered_at))

    assert len(model.requests) == 1
    assert seconds_since(began) < 15


# -- secrecy --------------------------------------------------------------------------------------


def echoed(handler: BaseHTTPRequestHandler) -> None:
    """Providers echo prompts in their errors."""
    send(handler, 400, {"error": {"message": "canary in the answer"}})


ALTERED = {
    "choices": [{"message": {"content": "canary"}}],
    "openrouter_metadata": {"pipeline": [{"type": "guardrail", "text": "canary"}]},
}


def test_no_error_quotes_the_request_or_the_answer(model: ScriptedModel) -> None:
    answers: list[Answer] = [
        *(echoed, cut_in_mid_body, cut_in_mid_chunk, hang_up),
        lambda handler: send(handler, 500, b"canary"),
        lambda handler: send(handler, 307, b"canary", {"Location": "http://canary.example/"}),
        lambda handler: send(handler, 429, b"canary", {"Retry-After": "canary"}),
        lambda handler: send(handler, 200, b"canary", {"Content-Encoding": "gzip"}),
        lambda handler: send(handler, 200, ALTERED),
        *[
            lambda handler, body=body: send(handler, 200, body)
            for body, _ in FAULTS_INSIDE_200.values()
        ],
    ]
    for number, answer in enumerate(answers):
        model.forget()
        model.answer(answer).answer(answer).answer(answer)

        fault = fault_of(model, messages=[user_message("canary in the ledger")])

        shown = "".join(traceback.format_exception(fault)) + repr(fault)
        assert "canary" not in shown, number
        assert KEY not in shown, number


# -- the catalogue --------------------------------------------------------------------------------


def listed(model: ScriptedModel) -> Catalogue:
    return Provider(model.base_url, KEY).catalogue


def test_the_catalogue_is_asked_for_once(model: ScriptedModel) -> None:
    asked: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        send(handler, 200, {"data": [{"id": "test/model"}]})

    model.catalogue = answer
    client = Provider(model.base_url, KEY)

    assert client.catalogue.find("test/model") is client.catalogue.find("test/model:nitro")
    assert asked == ["/v1/models"]


def test_a_catalogue_that_cannot_be_had_is_empty(model: ScriptedModel) -> None:
    assert listed(model) == Catalogue(())
    full = {"data": [{"id": "test/model", "context_length": 200_000}]}
    location = {"Location": f"{model.base_url}/models"}
    for status in (301, 307, 401, 404, 429, 500):
        model.catalogue = lambda handler, status=status: send(handler, status, full, location)
        assert listed(model) == Catalogue(()), status
    unreachable = Provider(f"http://127.0.0.1:{closed_port()}/v1", KEY)
    assert unreachable.catalogue == Catalogue(())


@pytest.mark.parametrize(
    ("error", "is_of_key"),
    [
        ([{"error": {"details": [{"reason": "API_KEY_INVALID"}]}}], True),
        ({"error": {"type": "no_db_connection"}}, True),
        ({"code": "invalid-argument"}, True),
        ({"error": {"type": "invalid_request_error"}}, False),
    ],
)
def test_a_wrong_key_shows_in_the_refusal_of_the_list(
    model: ScriptedModel, error: Any, is_of_key: bool
) -> None:
    model.catalogue = lambda handler: send(handler, 400, error)

    said = Provider(model.base_url, KEY).problem()

    assert ("(check OPENROUTER_API_KEY; " in (said or "")) == is_of_key


@pytest.mark.parametrize(
    ("parameters", "limit"),
    [
        (["tools", "max_tokens", "max_completion_tokens"], "max_completion_tokens"),
        (["tools", "max_tokens"], "max_tokens"),
        (["tools"], "max_completion_tokens"),
        (None, "max_completion_tokens"),
    ],
)
def test_the_output_limit_is_one_that_the_model_takes(
    model: ScriptedModel, parameters: list[str] | None, limit: str
) -> None:
    model.catalogue = [{"id": MODEL, "supported_parameters": parameters}]
    model.say("YES")

    ask(model)

    limits = [name for name in ("max_tokens", "max_completion_tokens") if name in model.requests[0]]
    assert limits == [limit]
