"""A real HTTP server that receives webhooks, and verifies them as the standard's library does."""

import ssl
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from standardwebhooks import Webhook

from tests.scripted_model import _Server


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    body: str

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def verified(self, secret: str) -> Any:
        """What it says; WebhookVerificationError if it was not signed with this secret now."""
        return Webhook(secret).verify(self.body, self.headers)


class Receiver:
    """Answers each request with the next status, or 200; keeps what it received."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.received: list[Received] = []
        self.statuses: deque[int] = deque()
        # set by the first request; and what it waits for before it is answered
        self.has_arrived = threading.Event()
        self.waits_for: threading.Event | None = None
        # a location to which each request is redirected
        self.location: str | None = None
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.005,), daemon=True
        )

    def __enter__(self) -> "Receiver":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?by=refine"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.received.append(Received(self.path, headers, body))
                receiver.has_arrived.set()
                if receiver.waits_for is not None:
                    receiver.waits_for.wait(60)
                status = receiver.statuses.popleft() if receiver.statuses else 200
                self.send_response(status)
                if receiver.location is not None:
                    self.send_header("Location", receiver.location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler
