"""OpenRouter over plain HTTP, against a real server: what is sent, retried, bounded and hidden."""

import json
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from refine.errors import ProviderError
from refine.llm import openrouter
from refine.llm.messages import Reply, Usage, user_message
from refine.llm.openrouter import Cancelled, OpenRouter, Privacy
from tests.scripted_model import Answer, ScriptedModel, send

KEY = "sk-or-of-the-tests"
MODEL = "test/model"
MESSAGES = [{"role": "system", "content": "You are Wren."}, user_message("Do you consent?")]
TOOLS = [{"type": "function", "function": {"name": "refinement", "parameters": {}}}]
PRIVACY = Privacy(session_id="session-1", account_ref="account-1")

RETRIED = [408, 429, 500, 502, 503, 504, 524, 529]
NEVER_RETRIED = [400, 401, 402, 403, 404, 409, 413, 422, 204, 301, 302, 303, 307, 308]
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
    monkeypatch.setattr(openrouter, "_BACKOFF_SECONDS", (0.0, 0.0))


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Set at the end of the test: until then a server may keep silent."""
    event = threading.Event()
    yield event
    event.set()


def ask(
    model: ScriptedModel | str,
    *,
    seconds: float = 30,
    plain: bool = False,
    messages: list[dict[str, Any]] | None = None,
    privacy: Privacy = PRIVACY,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Reply:
    base_url = model if isinstance(model, str) else model.base_url
    return OpenRouter(base_url, KEY, plain=plain).generate(
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


def drip(released: threading.Event, *, pause_seconds: float = 0.3) -> Answer:
    """A byte now and then: each of them begins a socket's timeout anew."""

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


# -- what is sent ---------------------------------------------------------------------------------


def test_the_body_is_exactly_this(model: ScriptedModel) -> None:
    model.say("YES")

    ask(model)

    assert model.requests == [
        {
            "model": "test/model",
            "messages": MESSAGES,
            "tools": TOOLS,
            "tool_choice": "auto",
            "max_tokens": 8_192,
            "stream": False,
            "provider": {"data_collection": "deny", "require_parameters": True, "zdr": True},
            "plugins": [{"id": "context-compression", "enabled": False}],
            "session_id": "session-1",
            "user": "account-1",
        }
    ]


def test_an_account_may_do_without_zero_data_retention_but_never_without_the_rest(
    model: ScriptedModel,
) -> None:
    model.say("YES")
    privacy = Privacy("session-1", "account-1", zero_data_retention=False)

    ask(model, privacy=privacy)

    assert model.requests[0]["provider"] == {
        "data_collection": "deny",
        "require_parameters": True,
        "zdr": False,
    }


def test_a_plain_server_gets_none_of_openrouters_own_fields(model: ScriptedModel) -> None:
    model.say("YES")

    ask(model, plain=True)

    assert model.requests == [
        {
            "model": "test/model",
            "messages": MESSAGES,
            "tools": TOOLS,
            "tool_choice": "auto",
            "max_tokens": 8_192,
            "stream": False,
        }
    ]
    assert not [name for name in model.headers[0] if name.lower().startswith("x-")]


def test_the_key_goes_along_and_nothing_that_names_anybody(model: ScriptedModel) -> None:
    model.say("YES")

    ask(model)

    headers = {name.lower(): value for name, value in model.headers[0].items()}
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["content-type"] == "application/json"
    assert headers["user-agent"] == "refine"
    assert headers["x-openrouter-metadata"] == "enabled"
    assert not headers.keys() & {"http-referer", "x-title", "x-openrouter-title", "cookie"}


def test_chat_completions_are_asked(model: ScriptedModel) -> None:
    paths: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        paths.append(handler.path)
        send(handler, 200, {"choices": [{"message": {"content": "YES"}}]})

    model.answer(answer)

    ask(model)

    assert paths == ["/v1/chat/completions"]


@pytest.mark.parametrize("text", ["tea 🦉\u2028\x07", "half \ud83d", "a\x00b"])
def test_every_text_of_a_conversation_arrives_as_it_is(model: ScriptedModel, text: str) -> None:
    model.say("YES")

    ask(model, messages=[user_message(text)])

    assert model.requests[0]["messages"] == [user_message(text)]


def test_every_attempt_sends_the_same(model: ScriptedModel) -> None:
    model.http(500).http(502).say("YES")

    ask(model)

    assert model.requests == [model.requests[0]] * 3
    assert {headers["Authorization"] for headers in model.headers} == {f"Bearer {KEY}"}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(model: ScriptedModel, status: int) -> None:
    model.http(status, Location=f"{model.base_url}/chat/completions").say("YES")

    fault = fault_of(model)

    assert len(model.requests) == 1
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


def test_no_proxy_of_the_environment_sees_the_ledger(
    model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    model.say("YES")

    reply = ask(model)

    assert reply.text == "YES"


# -- what comes back ------------------------------------------------------------------------------


def test_the_reply_holds_what_was_said_and_what_it_cost(model: ScriptedModel) -> None:
    usage = {"prompt_tokens": 1_000, "completion_tokens": 20, "cost": 0.012}
    model.say("YES, gladly.", usage=usage)

    assert ask(model) == Reply(
        message={"role": "assistant", "content": "YES, gladly."},
        text="YES, gladly.",
        tool_calls=(),
        model="test/model",
        is_cut=False,
        usage=Usage(prompt_tokens=1_000, completion_tokens=20, cost_usd=Decimal("0.012")),
        generation_id="gen-1",
    )


def test_several_calls_come_in_their_order(model: ScriptedModel) -> None:
    model.calls({"action": "delete", "id": 7}, '{"action": ', {"action": "complete"})

    calls = ask(model).tool_calls

    assert [call.arguments.get("action") for call in calls] == ["delete", None, "complete"]
    assert [call.problem is None for call in calls] == [True, False, True]


def test_what_goes_into_the_history_is_taken_back_by_the_next_call(model: ScriptedModel) -> None:
    details = [{"type": "reasoning.encrypted", "data": "d==", "index": 0}]
    model.reply({"content": None, "reasoning_details": details}).say("done")

    first = ask(model)
    ask(model, messages=[*MESSAGES, first.message])

    sent = model.requests[1]["messages"][-1]
    assert sent == {"role": "assistant", "content": "", "reasoning_details": details}


def test_blank_lines_before_the_answer_are_skipped(model: ScriptedModel) -> None:
    answer = json.dumps({"choices": [{"message": {"content": "YES"}}]}).encode()
    model.answer(lambda handler: send(handler, 200, b"\n\n   \n" * 100 + answer))

    assert ask(model).text == "YES"


# -- what is retried ------------------------------------------------------------------------------


@pytest.mark.parametrize("status", RETRIED)
def test_a_status_that_may_pass_is_retried(model: ScriptedModel, status: int) -> None:
    model.http(status).say("YES")

    assert ask(model).text == "YES"


@pytest.mark.parametrize("status", NEVER_RETRIED)
def test_any_other_status_is_final(model: ScriptedModel, status: int) -> None:
    model.http(status).say("YES")

    fault = fault_of(model)

    assert len(model.requests) == 1
    assert fault.http_status == status


@pytest.mark.parametrize(
    ("status", "kind", "advice"),
    [
        (400, "invalid_request", "invalid_request"),
        (401, "unauthorized", "OPENROUTER_API_KEY"),
        (402, "out_of_credit", "no credit"),
        (403, "forbidden", "may not use this model"),
        (404, "no_endpoint", "privacy settings"),
        (409, "refused", "refused"),
        (413, "too_large", "larger than the provider takes"),
        (422, "invalid_request", "invalid_request"),
        (408, "timeout", "timeout"),
        (429, "rate_limited", "rate_limited"),
        (500, "provider_error", "provider_error"),
        (529, "provider_error", "provider_error"),
    ],
)
def test_an_error_says_its_kind_its_status_and_what_to_do(
    model: ScriptedModel, status: int, kind: str, advice: str
) -> None:
    model.http(status).http(status).http(status)

    fault = fault_of(model)

    assert (fault.kind, fault.http_status) == (kind, status)
    assert f"HTTP {status}" in str(fault)
    assert advice in str(fault)


@pytest.mark.parametrize(("body", "kind"), FAULTS_INSIDE_200.values(), ids=FAULTS_INSIDE_200)
def test_a_fault_inside_a_200_is_retried(model: ScriptedModel, body: Any, kind: str) -> None:
    model.answer(lambda handler: send(handler, 200, body)).say("YES")

    assert ask(model).text == "YES"


@pytest.mark.parametrize(("body", "kind"), FAULTS_INSIDE_200.values(), ids=FAULTS_INSIDE_200)
def test_a_fault_inside_a_200_that_stays_is_named(
    model: ScriptedModel, body: Any, kind: str
) -> None:
    for _ in range(3):
        model.answer(lambda handler: send(handler, 200, body))

    fault = fault_of(model)

    assert (fault.kind, fault.http_status) == (kind, None)


@pytest.mark.parametrize("cut", [cut_in_mid_body, cut_in_mid_chunk, hang_up])
def test_a_connection_that_breaks_is_retried(model: ScriptedModel, cut: Answer) -> None:
    model.answer(cut).say("YES")

    assert ask(model).text == "YES"


@pytest.mark.parametrize("cut", [cut_in_mid_body, cut_in_mid_chunk, hang_up])
def test_a_connection_that_breaks_every_time_is_an_error(model: ScriptedModel, cut: Answer) -> None:
    model.answer(cut).answer(cut).answer(cut)

    fault = fault_of(model)

    assert fault.kind == "connection"
    assert len(model.requests) == 3


def test_a_server_that_is_not_there_is_an_error_that_names_its_address() -> None:
    base_url = f"http://127.0.0.1:{closed_port()}/v1"

    fault = fault_of(base_url)

    assert fault.kind == "connection"
    assert base_url in str(fault)


@pytest.mark.parametrize("status", [429, 500])
def test_there_are_at_most_three_attempts(model: ScriptedModel, status: int) -> None:
    model.http(status).http(status).http(status).say("YES")

    fault_of(model)

    assert len(model.requests) == 3


def test_the_last_of_several_faults_is_the_one_that_is_told(model: ScriptedModel) -> None:
    model.http(500).answer(cut_in_mid_body).http(429)

    assert fault_of(model).kind == "rate_limited"


def test_a_final_status_ends_the_attempts(model: ScriptedModel) -> None:
    model.http(500).http(401).say("YES")

    assert fault_of(model).kind == "unauthorized"
    assert len(model.requests) == 2


def test_an_answer_that_is_too_large_is_not_read_to_its_end_and_not_asked_for_again(
    model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openrouter, "MAX_REPLY_BYTES", 1_000)
    model.say("x" * 1_000).say("YES")

    fault = fault_of(model)

    assert fault.kind == "too_large"
    assert len(model.requests) == 1


def test_an_answer_as_large_as_the_limit_is_read(
    model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = json.dumps({"choices": [{"message": {"content": "YES"}}]}).encode()
    monkeypatch.setattr(openrouter, "MAX_REPLY_BYTES", len(answer))
    model.answer(lambda handler: send(handler, 200, answer))

    assert ask(model).text == "YES"


@pytest.mark.parametrize("stage", [{"type": "guardrail"}, {"name": "context-compression"}])
def test_a_request_that_was_altered_on_its_way_is_not_asked_again(
    model: ScriptedModel, stage: dict[str, str]
) -> None:
    model.say("YES", openrouter_metadata={"pipeline": [stage]}).say("YES")

    fault = fault_of(model)

    assert fault.kind == "altered_prompt"
    assert len(model.requests) == 1


# -- pauses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_honoured(model: ScriptedModel, status: int) -> None:
    model.http(status, Retry_After="1").say("YES")
    began = time.monotonic()

    ask(model)

    assert time.monotonic() - began >= 1


@pytest.mark.parametrize("retry_after", ["61", "3600", "99999999"])
def test_a_server_that_wants_more_than_a_minute_is_not_waited_for(
    model: ScriptedModel, retry_after: str
) -> None:
    model.http(429, Retry_After=retry_after).say("YES")
    began = time.monotonic()

    fault = fault_of(model, seconds=1_000_000_000)

    assert fault.kind == "rate_limited"
    assert len(model.requests) == 1
    assert time.monotonic() - began < 20


def test_a_server_that_wants_more_than_there_is_time_is_not_waited_for(
    model: ScriptedModel,
) -> None:
    model.http(429, Retry_After="60").say("YES")
    began = time.monotonic()

    fault = fault_of(model, seconds=30)

    assert fault.kind == "rate_limited"
    assert len(model.requests) == 1
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    "retry_after",
    ["", "soon", "-1", "1.5", "Wed, 21 Oct 2099 07:28:00 GMT", "²", "9" * 9, "0"],
)
def test_a_retry_after_that_is_no_number_of_seconds_counts_as_none(
    model: ScriptedModel, retry_after: str
) -> None:
    model.http(429, Retry_After=retry_after).say("YES")
    began = time.monotonic()

    reply = ask(model)

    assert reply.text == "YES"
    assert time.monotonic() - began < 20


def test_pauses_grow(model: ScriptedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openrouter, "_BACKOFF_SECONDS", (0.2, 0.8))
    arrived: list[float] = []
    for status in (500, 500, 500):
        model.http(status).meanwhile(lambda: arrived.append(time.monotonic()))

    fault_of(model)

    assert arrived[1] - arrived[0] >= 0.2
    assert arrived[2] - arrived[1] >= 0.8


# -- the deadline ---------------------------------------------------------------------------------


def test_a_server_that_keeps_silent_is_waited_for_until_the_deadline(
    model: ScriptedModel, released: threading.Event
) -> None:
    model.answer(silence(released))
    began = time.monotonic()

    fault = fault_of(model, seconds=1)

    assert fault.kind == "timeout"
    assert 0.9 < time.monotonic() - began < 15


def test_a_slow_drip_does_not_outlast_the_deadline(
    model: ScriptedModel, released: threading.Event
) -> None:
    model.answer(drip(released))
    began = time.monotonic()

    fault = fault_of(model, seconds=1)

    assert fault.kind == "timeout"
    assert time.monotonic() - began < 15


def test_the_deadline_bounds_all_attempts_together(
    model: ScriptedModel, monkeypatch: pytest.MonkeyPatch, released: threading.Event
) -> None:
    monkeypatch.setattr(openrouter, "_ATTEMPT_SECONDS", 0.4)
    for _ in range(3):
        model.answer(silence(released))

    fault = fault_of(model, seconds=0.6)

    assert fault.kind == "timeout"
    assert len(model.requests) == 2


def test_an_attempt_that_hangs_leaves_time_for_another(
    model: ScriptedModel, monkeypatch: pytest.MonkeyPatch, released: threading.Event
) -> None:
    monkeypatch.setattr(openrouter, "_ATTEMPT_SECONDS", 0.5)
    model.answer(drip(released, pause_seconds=0.1)).say("YES")

    assert ask(model).text == "YES"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a full backlog may refuse at once")
def test_a_server_that_takes_no_connection_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(openrouter, "_CONNECT_SECONDS", 0.2)
    began = time.monotonic()

    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        fault = fault_of(f"http://127.0.0.1:{listener.getsockname()[1]}/v1")

    assert fault.kind == "timeout"
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("seconds", [0, -1])
def test_after_the_deadline_nothing_is_asked(model: ScriptedModel, seconds: float) -> None:
    model.say("YES")

    fault = fault_of(model, seconds=seconds)

    assert fault.kind == "deadline"
    assert model.requests == []


# -- stopping -------------------------------------------------------------------------------------


def test_a_stop_is_noticed_while_the_model_is_awaited(
    model: ScriptedModel, released: threading.Event
) -> None:
    model.answer(silence(released))
    began = time.monotonic()

    with pytest.raises(Cancelled):
        ask(model, is_cancelled=lambda: bool(model.requests))

    assert time.monotonic() - began < 15


def test_a_stop_is_noticed_while_pausing_between_attempts(model: ScriptedModel) -> None:
    answered_at: list[float] = []

    def busy(handler: BaseHTTPRequestHandler) -> None:
        send(handler, 429, {}, {"Retry-After": "25"})
        answered_at.append(time.monotonic())

    model.answer(busy)
    began = time.monotonic()

    with pytest.raises(Cancelled):
        # by then the answer is read, and the rest is the pause
        ask(model, is_cancelled=lambda: any(time.monotonic() - at > 0.5 for at in answered_at))

    assert len(model.requests) == 1
    assert time.monotonic() - began < 15


def test_a_stop_that_was_asked_for_before_asks_nothing_of_a_second_attempt(
    model: ScriptedModel,
) -> None:
    with pytest.raises(Cancelled):
        ask(model, is_cancelled=lambda: True)

    assert len(model.requests) <= 1


# -- what never shows -----------------------------------------------------------------------------


def echoed(handler: BaseHTTPRequestHandler) -> None:
    """Providers echo prompts in their errors."""
    send(handler, 400, {"error": {"message": "canary in the answer"}})


@pytest.mark.parametrize(
    "answer",
    [
        echoed,
        cut_in_mid_body,
        cut_in_mid_chunk,
        hang_up,
        lambda handler: send(handler, 500, b"canary"),
        lambda handler: send(handler, 307, b"canary", {"Location": "http://canary.example/"}),
        lambda handler: send(handler, 429, b"canary", {"Retry-After": "canary"}),
        lambda handler: send(handler, 200, b"canary", {"Content-Encoding": "gzip"}),
        *[
            lambda handler, body=body: send(handler, 200, body)
            for body, _ in FAULTS_INSIDE_200.values()
        ],
        lambda handler: send(
            handler,
            200,
            {
                "choices": [{"message": {"content": "canary"}}],
                "openrouter_metadata": {"pipeline": [{"type": "guardrail", "text": "canary"}]},
            },
        ),
    ],
)
def test_no_error_shows_what_was_sent_or_answered(model: ScriptedModel, answer: Answer) -> None:
    model.answer(answer).answer(answer).answer(answer)
    messages = [user_message("canary in the ledger")]

    fault = fault_of(model, messages=messages)

    shown = "".join(traceback.format_exception(fault)) + repr(fault)
    assert "canary" not in shown
    assert KEY not in shown


def test_a_key_that_no_header_can_carry_is_not_shown() -> None:
    client = OpenRouter(f"http://127.0.0.1:{closed_port()}/v1", "sk-\ncanary")

    with pytest.raises(ProviderError) as fault:
        client.generate(MODEL, MESSAGES, TOOLS, PRIVACY, deadline=time.monotonic() + 30)

    assert "canary" not in "".join(traceback.format_exception(fault.value))


# -- the catalogue --------------------------------------------------------------------------------


def client_of(model: ScriptedModel) -> OpenRouter:
    return OpenRouter(model.base_url, KEY)


def test_the_context_length_is_the_one_that_the_server_names(model: ScriptedModel) -> None:
    model.catalogue = [
        {"id": "test/other"},
        {"id": "test/model", "context_length": 200_000},
        {"id": "test/model:free", "context_length": 8_000},
    ]

    assert client_of(model).context_tokens("test/model") == 200_000


@pytest.mark.parametrize("length", [None, 0, -1, "200000", 200_000.0, True, [200_000]])
def test_a_context_length_of_another_shape_counts_as_none(
    model: ScriptedModel, length: Any
) -> None:
    model.catalogue = [{"id": "test/model", "context_length": length}]

    assert client_of(model).context_tokens("test/model") is None


def test_a_model_that_is_not_listed_has_no_context_length(model: ScriptedModel) -> None:
    model.catalogue = [{"id": "test/other", "context_length": 200_000}]

    assert client_of(model).context_tokens("test/model") is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b"{}",
        b"[" * 100_000,
        b'{"data": null}',
        b'{"data": 7}',
        b'{"data": ["test/model"]}',
        b'{"data": [null]}',
        b'{"data": [{}]}',
        b'{"data": [{"id": "test/model"}]}',
    ],
    ids=range(12),
)
def test_a_broken_catalogue_names_nothing(model: ScriptedModel, body: bytes) -> None:
    model.catalogue = lambda handler: send(handler, 200, body)

    assert client_of(model).context_tokens("test/model") is None


@pytest.mark.parametrize("status", [301, 307, 401, 404, 429, 500])
def test_a_catalogue_that_is_refused_names_nothing(model: ScriptedModel, status: int) -> None:
    listed = {"data": [{"id": "test/model", "context_length": 200_000}]}
    location = {"Location": f"{model.base_url}/models"}
    model.catalogue = lambda handler: send(handler, status, listed, location)

    assert client_of(model).context_tokens("test/model") is None


def test_a_server_without_a_catalogue_names_nothing(model: ScriptedModel) -> None:
    assert client_of(model).context_tokens("test/model") is None


def test_a_server_that_is_not_there_names_nothing() -> None:
    client = OpenRouter(f"http://127.0.0.1:{closed_port()}/v1", KEY)

    assert client.context_tokens("test/model") is None


@pytest.mark.parametrize("slow", [silence, drip])
def test_a_slow_catalogue_is_not_waited_for(
    model: ScriptedModel,
    slow: Callable[[threading.Event], Answer],
    released: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(openrouter, "_CATALOGUE_SECONDS", 0.5)
    model.catalogue = slow(released)
    began = time.monotonic()

    assert client_of(model).context_tokens("test/model") is None
    assert time.monotonic() - began < 15
