"""Serves the rehearsal model, or another one that is played, over HTTP on loopback."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from refine.llm.rehearsal.model import answer

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
        body = self.rfile.read(int(self.headers["Content-Length"]))
        reply = self.server.answer(json.loads(body))
        content = json.dumps(reply).encode()
        self.send_response(reply.get("error", {}).get("code", 200))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
