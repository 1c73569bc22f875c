"""Each fault of ``tests/providers/faults.py``, played by a real server to the real client."""

import socket
import threading
import time
import traceback
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest

from refine.errors import ProviderError
from refine.llm import exchange, provider
from refine.llm.dialects import PLAIN
from refine.llm.exchange import Cancelled
from refine.llm.messages import Privacy, Reply, user_message
from refine.llm.provider import MAX_ATTEMPTS, Provider
from tests.commands import eventually
from tests.providers.faults import CANARY, FAULTS
from tests.scripted_model import ScriptedModel

PRIVACY = Privacy(session_id="session-1", account_ref="account-1")
KEY, ASKED = "sk-of-the-tests", "Do you consent?"
MESSAGES = [user_message(ASKED)]
ENDLESS = [fault for fault in FAULTS.values() if fault.endless]
LARGE = [name for name in FAULTS if "without end" in name or "bomb" in name or "MB" in name]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "_BACKOFF_SECONDS", (0.0, 0.0))


def ask(model: ScriptedModel, seconds: float = 60, **options: Any) -> Reply:
    deadline = time.monotonic() + seconds
    client = Provider(model.base_url, KEY, PLAIN)
    return client.generate("a/model", MESSAGES, [], PRIVACY, deadline=deadline, **options)


def waiting() -> list[threading.Thread]:
    """The threads that still talk to a server."""
    return [each for each in threading.enumerate() if each.name == "refine-llm-call"]


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_each_fault_is_named_in_time_and_leaves_nothing_behind(fault, model):
    for _ in range(MAX_ATTEMPTS):
        model.answer(fault.play)
    began = time.monotonic()
    kind, shown = None, ""

    try:
        reply = ask(model, seconds=0.4 if fault.endless else 60)
    except ProviderError as error:
        kind, shown = error.kind, repr(error) + "".join(traceback.format_exception(error))

    assert kind == fault.kind, shown
    assert time.monotonic() - began < 30
    assert not [secret for secret in (CANARY, ASKED, KEY) if secret in shown]
    if kind is None:
        assert "\ud83d" not in str(reply.message)
    if not fault.endless:
        attempts = MAX_ATTEMPTS if fault.is_retried and fault.kind else 1
        assert len(model.requests) == attempts
    eventually(lambda: not waiting(), seconds=20)


def test_a_stop_leaves_no_thread_with_a_server_that_never_ends(model):
    for fault in ENDLESS:
        model.answer(fault.play)
        asked = len(model.requests)
        with pytest.raises(Cancelled):
            ask(model, is_cancelled=lambda before=asked: len(model.requests) > before)

        eventually(lambda: not waiting(), seconds=20)


@pytest.mark.parametrize("name", LARGE)
def test_no_answer_takes_much_memory(model, name):
    for _ in range(MAX_ATTEMPTS):
        model.answer(FAULTS[name].play)
    tracemalloc.start()
    try:
        with pytest.raises(ProviderError):
            ask(model, seconds=30)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 16 * 1024 * 1024


def test_nothing_is_sent_once_nobody_waits(model, monkeypatch):
    """The server's name may be looked up for longer than the deadline."""
    found = threading.Event()
    look_up = socket.getaddrinfo

    def slow(*name: Any) -> Any:
        found.wait(60)
        return look_up(*name)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with pytest.raises(ProviderError) as fault:
        ask(model, seconds=0.4)
    found.set()
    eventually(lambda: not waiting(), seconds=20)

    assert (fault.value.kind, model.requests) == ("timeout", [])


def test_a_handshake_that_drips_ends_with_the_deadline():
    """It never times out by itself: each byte begins a new wait."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=drip_a_handshake, args=(listener,), daemon=True).start()
        client = Provider(f"https://127.0.0.1:{listener.getsockname()[1]}/v1", "key", PLAIN)
        with pytest.raises(ProviderError) as fault:
            client.generate("a/model", MESSAGES, [], PRIVACY, deadline=time.monotonic() + 0.4)

        assert fault.value.kind == "timeout"
        eventually(lambda: not waiting(), seconds=20)


def test_a_silent_server_is_given_up_soon(monkeypatch):
    monkeypatch.setattr(exchange, "_CONNECT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = Provider(f"https://127.0.0.1:{listener.getsockname()[1]}/v1", "key", PLAIN)
        with pytest.raises(ProviderError, match="server did not answer in time"):
            client.generate("a/model", MESSAGES, [], PRIVACY, deadline=time.monotonic() + 30)


def drip_a_handshake(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection, suppress(OSError):
        connection.sendall(b"\x16\x03\x03\x3f\xff\x02")
        while True:
            connection.sendall(b"\x00")
            time.sleep(0.05)
