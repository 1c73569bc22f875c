"""Serves the rehearsal model, or another one that is played, over HTTP on loopback."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from refine.llm.rehearsal.model import answer, error

_PATH = "/v1/chat/completions"
_SHUTDOWN_POLL_SECONDS = 0.05

# From the body of a request to a chat completion, or an error in OpenRouter's shape.
Answer = Callable[[Any], dict[str, Any]]


@contextmanager
def serving(answer: Answer = answer) -> Iterator[str]:
    """Serve the rehearsal model on loopback until the block ends; yield its URL, with ``/v1``.

    Another ``answer`` plays another model.
    """
    server = _Server(("127.0.0.1", 0), _Handler)
    server.answer = answer
    thread = threading.Thread(
        target=server.serve_forever, args=(_SHUTDOWN_POLL_SECONDS,), name="rehearsal", daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    answer: Answer

    def server_bind(self) -> None:
        # HTTPServer resolves the machine's name, which can take seconds
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report errors, except of clients that hung up."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    timeout = 30
    server: _Server

    def do_POST(self) -> None:
        # read first: closing with unread bytes resets the client's connection
        body = self._body()
        if self._path_is_known():
            reply = self.server.answer(body)
            self._respond(reply.get("error", {}).get("code", 200), reply)

    def _refuse_method(self) -> None:
        self._body()
        if self._path_is_known():
            self._respond(405, error(405, "Method not allowed: use POST."))

    do_GET = do_HEAD = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse_method

    def _body(self) -> Any:
        length = self.headers.get("Content-Length", "")
        try:
            return json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            return None

    def _path_is_known(self) -> bool:
        known = self.path.partition("?")[0] == _PATH
        if not known:
            self._respond(404, error(404, f"Not found: this server only answers {_PATH}."))
        return known

    def _respond(self, status: int, payload: dict[str, Any]) -> None:
        content = json.dumps(payload).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if status == 405:
            self.send_header("Allow", "POST")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
