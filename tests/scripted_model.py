"""A real HTTP server that plays the model: a queue of replies, and a history of requests."""

import json
import sys
import threading
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler], None]


class _Server(ThreadingHTTPServer):
    def handle_error(self, *address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # who asked may have left
            super().handle_error(*address)


class ScriptedModel:
    """Answers each request with the next scripted reply; records what it was asked.

    ``say``, ``call`` and ``calls`` script what a model says; ``answer`` takes full control of the
    socket. Out of script, it answers HTTP 400, so that a test cannot pass by accident.
    """

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.tool = "refinement"
        self.catalogue: list[dict[str, Any]] | Answer | None = None
        self._script: deque[Answer] = deque()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.005,), daemon=True
        )

    def __enter__(self) -> "ScriptedModel":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    # -- the script ---------------------------------------------------------------------------

    def say(self, text: str | None, **fields: Any) -> "ScriptedModel":
        """An answer in words."""
        return self.reply({"content": text}, **fields)

    def call(self, action: str, **params: Any) -> "ScriptedModel":
        """One call of the tool ``refinement`` with this action."""
        return self.calls({"action": action, **params})

    def calls(self, *arguments: dict[str, Any] | str, **fields: Any) -> "ScriptedModel":
        """Several calls of ``tool`` in one answer; a string is sent as it is, in place of JSON."""
        written = [
            {
                "id": f"call-{len(self._script)}-{n}",
                "type": "function",
                "function": {
                    "name": self.tool,
                    "arguments": given if isinstance(given, str) else json.dumps(given),
                },
            }
            for n, given in enumerate(arguments)
        ]
        fields.setdefault("finish_reason", "tool_calls")
        return self.reply({"content": None, "tool_calls": written}, **fields)

    def reads(self, **found: list[str]) -> "ScriptedModel":
        """The answer to a second reading of one edit: nothing, or what is ``found``."""
        return self.say(json.dumps({"case": 1, **found}))

    def reply(
        self,
        message: dict[str, Any],
        *,
        finish_reason: str = "stop",
        model: str | None = None,
        usage: dict[str, Any] | None = None,
        **extra: Any,
    ) -> "ScriptedModel":
        """A whole answer; ``model`` is the asked one unless given."""
        usage = usage or {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        choice = {"index": 0, "finish_reason": finish_reason}

        def body(asked: dict[str, Any]) -> dict[str, Any]:
            return {
                "id": "gen-1",
                "object": "chat.completion",
                "model": model or asked["model"],
                "choices": [{**choice, "message": {"role": "assistant", **message}}],
                "usage": usage,
                **extra,
            }

        return self.answer(lambda handler: send(handler, 200, body(self.requests[-1])))

    def http(self, status: int, body: Any = None, **headers: str) -> "ScriptedModel":
        """A bare HTTP answer."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.answer(lambda handler: send(handler, status, body or {}, named))

    def answer(self, answer: Answer) -> "ScriptedModel":
        self._script.append(answer)
        return self

    def meanwhile(self, work: Callable[[], object]) -> "ScriptedModel":
        """Do this while the last scripted answer is awaited."""
        answer = self._script.pop()

        def worked(handler: BaseHTTPRequestHandler) -> None:
            work()
            answer(handler)

        return self.answer(worked)

    def forget(self) -> None:
        """Drop what is left of the script, and the history."""
        self._script.clear()
        self.requests.clear()
        self.headers.clear()

    @property
    def left(self) -> int:
        """The number of scripted replies left."""
        return len(self._script)

    # -- the server ---------------------------------------------------------------------------

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                scripted.requests.append(json.loads(body))
                scripted.headers.append(dict(self.headers))
                if not scripted._script:
                    send(self, 400, {"error": {"code": 400, "message": "out of script"}})
                else:
                    scripted._script.popleft()(self)

            def do_GET(self) -> None:
                if self.path == "/v1/models" and callable(scripted.catalogue):
                    scripted.catalogue(self)
                elif self.path == "/v1/models" and scripted.catalogue is not None:
                    send(self, 200, {"data": scripted.catalogue})
                else:
                    send(self, 404, {"error": {"code": 404, "message": "not found"}})

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def send(
    handler: BaseHTTPRequestHandler,
    status: int,
    body: Any,
    headers: dict[str, str] | None = None,
) -> None:
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response(status)
    for name, value in (headers or {}).items():
        handler.send_header(name, value)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(payload)))
    handler.end_headers()
    handler.wfile.write(payload)
