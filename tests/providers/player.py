"""A real HTTP server that plays one provider strictly, in both directions.

It checks every request against the provider's rules, and refuses what breaks them.
What it says comes from a function of the messages, so that whole sessions can be played.
"""

import json
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.providers.checks import Asked, Message, Rule
from tests.providers.rules import Provider
from tests.providers.shapes import Step
from tests.scripted_model import send

Play = Callable[[list[Message]], Step]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # who asked may have left
            super().handle_error(*address)


class Player:
    """Plays ``provider``; ``refused`` lists the rules that were broken, each with its place."""

    def __init__(self, provider: Provider, play: Play) -> None:
        self.provider = provider
        self.asked: list[Asked] = []
        self.said: list[Message] = []
        self.refused: list[tuple[Rule, str]] = []
        self.unknown_paths: list[str] = []
        self._play = play
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.005,), daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{self.provider.path}"

    def answer(self, asked: Asked) -> tuple[int, Any]:
        """Return status and body: the refusal of the first broken rule, or what is played."""
        self.asked.append(asked)
        for rule in self.provider.rules:
            where = rule.check(asked)
            if where is not None:
                self.refused.append((rule, where))
                return 400, {"error": {"message": f"canary at {where}"}}
        return 200, self._reply(asked)

    def _reply(self, asked: Asked) -> dict[str, Any]:
        number = len(self.said) + 1
        shape = self.provider.shape
        step = self._play(asked.messages)
        tools = asked.body.get("tools") or [{"function": {"name": "none"}}]
        message = shape.message(step, number, tools[0]["function"]["name"])
        self.said.append(message)
        return shape.answer(message, number, self.provider.answers_as, is_cut=step.is_cut)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        player = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path != f"{player.provider.path}/chat/completions":
                    self._refuse_path()
                    return
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, answer = player.answer(Asked(body, headers, tuple(player.said)))
                send(self, status, answer, dict(player.provider.shape.headers))

            def do_GET(self) -> None:
                path = self.path.removeprefix(player.provider.path)
                if path in player.provider.lists:
                    send(self, 200, player.provider.lists[path])
                else:
                    self._refuse_path()

            def _refuse_path(self) -> None:
                player.unknown_paths.append(self.path)
                send(self, 404, {"error": {"code": 404, "message": "no such path"}})

            def log_message(self, *_: Any) -> None:
                pass

        return Handler
