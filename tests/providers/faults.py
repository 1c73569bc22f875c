"""What a model's server may do instead of answering: each kind of fault, by name.

``FAULTS`` is data for every test that needs a model whose server fails: ``play`` answers a request
with the fault (``ScriptedModel.answer`` takes it), ``kind`` is the kind of ProviderError that must
come of it, or None if a reply does. Faults that are ``endless`` go on until who asked leaves.
"""

import gzip
import json
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from itertools import chain, repeat
from typing import Any

from tests.scripted_model import Answer, send

# Longer than any test waits, so that a server's thread outlives no run of the tests.
_PATIENCE_SECONDS = 120.0
_DRIP_SECONDS = 0.05
_BLOCK = b" " * 65_536
_OK = b"HTTP/1.1 200 OK\r\n"
_JSON = b"Content-Type: application/json\r\n"

# Words of no answer: no error, log line or page may show them.
CANARY = "Canary-Juniper-4711"


@dataclass(frozen=True)
class Fault:
    """A way to fail; ``is_retried`` tells whether another attempt may help."""

    name: str
    play: Answer
    kind: str | None
    is_retried: bool = True
    endless: bool = False


# -- ways to answer -------------------------------------------------------------------------------


def raw(*blocks: bytes, reset: bool = False) -> Answer:
    """Send these bytes, whatever they are, and hang up."""

    def play(handler: BaseHTTPRequestHandler) -> None:
        _write(handler, blocks)
        hang_up(handler, reset=reset)

    return play


def flood(begin: bytes, block: bytes) -> Answer:
    """Begin so, and repeat ``block`` until who asked has left."""

    def play(handler: BaseHTTPRequestHandler) -> None:
        _write(handler, chain([begin], repeat(block)))

    return play


def drip(begin: bytes, block: bytes) -> Answer:
    """Begin so, and send ``block`` now and then: each restarts a socket's timeout."""

    def play(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(begin)
        while not has_left(handler, _DRIP_SECONDS):
            handler.wfile.write(block)

    return play


def silence(begin: bytes = b"") -> Answer:
    """Begin so, and say no more."""

    def play(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        handler.wfile.write(begin)
        has_left(handler, _PATIENCE_SECONDS)

    return play


def status(code: int, body: Any = None, **headers: str) -> Answer:
    """Answer with a status."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    said = body if body is not None else {"error": {"code": code, "message": CANARY}}
    return lambda handler: send(handler, code, said, named)


def body(text: str | bytes) -> Answer:
    """Answer HTTP 200 with this body."""
    encoded = text if isinstance(text, bytes) else text.encode()
    return lambda handler: send(handler, 200, encoded)


def message(written: str, reason: str = "stop", before: str = "") -> Answer:
    """Answer with this message, written in JSON; ``before`` are other fields, written likewise."""
    choice = f'{{"index": 0, "finish_reason": "{reason}", "message": {written}}}'
    return body(f'{{{before}"choices": [{choice}]}}')


def encoded(content: bytes, *encodings: str) -> Answer:
    head = _OK + _JSON + f"Content-Encoding: {', '.join(encodings)}\r\n".encode()
    return raw(head + f"Content-Length: {len(content)}\r\n\r\n".encode(), content)


def hang_up(handler: BaseHTTPRequestHandler, *, reset: bool = False) -> None:
    handler.close_connection = True
    if reset:  # with data left to send or not: the other side gets a reset
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()
    else:
        handler.connection.shutdown(socket.SHUT_RDWR)


def has_left(handler: BaseHTTPRequestHandler, seconds: float) -> bool:
    """Wait so long for who asked to hang up."""
    handler.connection.settimeout(seconds)
    try:
        return handler.connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True
    finally:
        handler.connection.settimeout(_PATIENCE_SECONDS)


def _write(handler: BaseHTTPRequestHandler, blocks: Iterable[bytes]) -> None:
    handler.close_connection = True
    handler.connection.settimeout(_PATIENCE_SECONDS)
    for block in blocks:
        handler.wfile.write(block)


# -- bodies ---------------------------------------------------------------------------------------


def _zeros(megabytes: int) -> bytes:
    return gzip.compress(bytes(1 << 20), mtime=0) * megabytes


def _calls(number: int, call: str = "{}") -> str:
    return f'{{"tool_calls": [{", ".join([call] * number)}]}}'


def _call(arguments: str) -> str:
    function = json.dumps({"name": "refinement", "arguments": arguments})
    return _calls(1, f'{{"id": "call-1", "type": "function", "function": {function}}}')


def _nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def _details(written: str) -> str:
    return f'{{"content": "YES", "reasoning_details": {written}}}'


# -- the faults -----------------------------------------------------------------------------------

_REFUSED = {
    "invalid_request": (400, 422),
    "unauthorized": (401,),
    "out_of_credit": (402,),
    "forbidden": (403,),
    "no_endpoint": (404,),
    "refused": (409,),
    "too_large": (413,),
}
_FAILED = {
    "timeout": (408,),
    "rate_limited": (429,),
    "provider_error": (500, 502, 503, 504, 524, 529),
}


def _statuses() -> Iterator[Fault]:
    for kind, refused in _REFUSED.items():
        for code in refused:
            yield Fault(f"HTTP {code}", status(code), kind, is_retried=False)
    for kind, failed in _FAILED.items():
        for code in failed:
            yield Fault(f"HTTP {code}", status(code), kind)
    for code in (204, 301, 302, 303, 307, 308):
        play = status(code, b"", Location="/v1/chat/completions")
        yield Fault(f"HTTP {code} to itself", play, "refused", is_retried=False)
    yield Fault("HTTP 500 as a page", status(500, b"<html>" + CANARY.encode()), "provider_error")
    yield Fault(
        "HTTP 429 for a day", status(429, Retry_After="86400"), "rate_limited", is_retried=False
    )
    codes = json.dumps([{"code": f"invalid_code_{n}"} for n in range(2_000)])
    refusal = f'{{"error": {{"message": "{CANARY}", "details": {codes}}}}}'.encode()
    yield Fault(
        "HTTP 400 with 2,000 codes", status(400, refusal), "invalid_request", is_retried=False
    )


def _final(name: str, play: Answer, kind: str) -> Fault:
    return Fault(name, play, kind, is_retried=False)


def _endless(name: str, play: Answer) -> Fault:
    return Fault(name, play, "timeout", endless=True)


_CHUNKED = _OK + b"Transfer-Encoding: chunked\r\n\r\n"
_BEGUN = _OK + b'Content-Length: 99\r\n\r\n{"choices": ['
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_CONNECTION = (
    Fault("hangs up at once", raw(), "connection"),
    Fault("resets at once", raw(reset=True), "connection"),
    Fault("hangs up in the status line", raw(b"HTTP/1.1 2"), "connection"),
    Fault("hangs up in the headers", raw(_OK + b"Content-Le"), "invalid_reply"),
    Fault("hangs up in the body", raw(_BEGUN), "connection"),
    Fault("resets in the body", raw(_BEGUN, reset=True), "connection"),
    Fault("hangs up in a chunk", raw(_CHUNKED + b'400\r\n{"choices": ['), "connection"),
    Fault("a chunk of no size", raw(_CHUNKED + b"many\r\n{}\r\n0\r\n\r\n"), "connection"),
    _final("a chunk of a negative size", raw(_CHUNKED + b"-5\r\n{}\r\n0\r\n\r\n"), "connection"),
    Fault("a chunk of all memory", raw(_CHUNKED + b"ffffffffffffffff\r\n{}"), "connection"),
    Fault("speaks no HTTP", raw(b"220 mail.example.com ESMTP\r\n"), "connection"),
    Fault("speaks TLS", raw(b"\x15\x03\x01\x00\x02\x02\x46"), "connection"),
    Fault("a status of no number", raw(b"HTTP/1.1 fine OK\r\n\r\n"), "connection"),
    Fault("100 headers too many", raw(_OK + b"X-A: b\r\n" * 200 + b"\r\n{}"), "connection"),
    Fault("broken gzip", encoded(b"canary" * 99, "gzip"), "connection"),
    _endless("silent", silence()),
    _endless("silent after the headers", silence(_OK + b"\r\n")),
    _endless("drips headers", drip(_OK + b"X-A: ", b"a")),
    _endless("drips a body", drip(_OK + b"Content-Length: 99999\r\n\r\n", b"\n")),
    _endless("drips chunks", drip(_CHUNKED, b"1\r\n\n\r\n")),
    _endless("drips HTTP 100", drip(b"", _CONTINUE)),
    _endless("floods of HTTP 100", flood(b"", _CONTINUE * 1_000)),
    _endless("drips a refusal", drip(b"HTTP/1.1 500 No\r\n\r\n", b" ")),
    Fault("a header without end", flood(_OK + b"X-A: ", b"a" * 65_536), "connection"),
    Fault("headers without end", flood(_OK, b"X-A: b\r\n" * 1_000), "connection"),
)

_CUT_REFUSAL = b"HTTP/1.1 500 No\r\nContent-Length: 99\r\n\r\n{"
_TWICE = gzip.compress(_zeros(256), mtime=0)
_TOO_MUCH = (
    _final("a body without end", flood(_OK + b"\r\n", _BLOCK), "too_large"),
    _final("chunks without end", flood(_CHUNKED, b"10000\r\n" + _BLOCK + b"\r\n"), "too_large"),
    _final("100 MB", flood(_OK + b"Content-Length: 104857600\r\n\r\n", _BLOCK), "too_large"),
    _final("a gzip bomb", encoded(_zeros(256), "gzip"), "too_large"),
    _final("a gzip bomb in gzip", encoded(_TWICE, "gzip", "gzip"), "too_large"),
    Fault("hangs up in a refusal", raw(_CUT_REFUSAL), "provider_error"),
    Fault("a refusal without end", flood(b"HTTP/1.1 503 No\r\n\r\n", _BLOCK), "provider_error"),
    _final(
        "a refusal as a gzip bomb",
        lambda handler: send(handler, 400, _zeros(256), {"Content-Encoding": "gzip"}),
        "invalid_request",
    ),
)

_NO_ANSWER = (
    Fault("nothing", body(""), "invalid_reply"),
    Fault("a page", body(f"<!DOCTYPE html><title>{CANARY}</title>"), "invalid_reply"),
    Fault("half a JSON", body('{"choices": [{"message": {"content": "YES'), "invalid_reply"),
    Fault("no object", body('["YES"]'), "invalid_reply"),
    Fault("an error inside", body(f'{{"error": {{"message": "{CANARY}"}}}}'), "provider_error"),
    Fault(
        "an error in the middle",
        body(f'{{"choices": [{{"error": {{"message": "{CANARY}"}}, "message": {{}}}}]}}'),
        "provider_error",
    ),
    Fault("no choices", body('{"choices": []}'), "empty_reply"),
    Fault("no message", body('{"choices": [{"finish_reason": "stop"}]}'), "empty_reply"),
    Fault("101 calls", message(_calls(101)), "too_many_calls"),
    Fault("30,000 calls", message(_calls(30_000)), "too_many_calls"),
    Fault("nested beyond all use", message(_details(_nested(500))), "invalid_reply"),
    Fault("nested beyond recursion", message(_details(_nested(100_000))), "invalid_reply"),
    Fault("a number of 100,000 digits", message(_details(f"[{'9' * 100_000}]")), "invalid_reply"),
)

_ODD = (
    Fault("NaN", message(_details('[{"index": NaN, "text": -Infinity}]')), None),
    Fault("1e999999", message(_details("[1e999999]")), None),
    Fault("a lone surrogate", message(r'{"content": "YES \ud83d"}'), None),
    Fault("a lone surrogate in thoughts", message(_details(r'[{"\udc00": "\ud83d"}]')), None),
    Fault("NUL", message(r'{"content": "YES \u0000"}'), None),
    Fault("NUL in its id", message('{"content": "YES"}', before=r'"id": "a\u0000\ud83d", '), None),
    Fault("keys twice", message('{"content": "NO", "content": "YES"}'), None),
    Fault("words as a number", message('{"content": 7}'), None),
    Fault("100 calls", message(_calls(100), "tool_calls"), None),
    Fault("half a call", message(_call('{"action": "del'), "length"), None),
    Fault("a call of no function", message(_calls(1), "tool_calls"), None),
    Fault(
        "a call of an impossible function",
        message(_calls(1, '{"function": {"name": "r m \\ud800", "arguments": "{}"}}')),
        None,
    ),
)

FAULTS = {
    fault.name: fault for fault in chain(_statuses(), _CONNECTION, _TOO_MUCH, _NO_ANSWER, _ODD)
}
