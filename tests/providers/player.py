"""A real HTTP server that plays one provider strictly, in both directions.

It checks every request against the provider's rules, and refuses what breaks them.
What it says comes from a function of the messages, so that whole sessions can be played.
"""

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from jsonschema import Draft7Validator, SchemaError

from tests.providers.providers import Message, Provider, Step
from tests.scripted_model import send

Play = Callable[[list[Message]], Step]

COMMON_FIELDS = {"model", "messages", "tools", "tool_choice", "stream"}
OPENROUTER_TERMS = {"data_collection", "require_parameters", "zdr"}
FUNCTION_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Gemini refuses them: https://github.com/zed-industries/zed/issues/44875
REFUSED_KEYWORDS = ("const", "oneOf", "$ref")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # who asked may have left
            super().handle_error(*address)


class Player:
    """Plays ``provider``; ``refused`` lists the places of requests that broke a rule."""

    def __init__(self, provider: Provider, play: Play) -> None:
        self.provider = provider
        self.said: list[Message] = []
        self.refused: list[str] = []
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

    def answer(self, body: dict[str, Any], headers: Mapping[str, str]) -> tuple[int, Any]:
        """Return status and body: a refusal of what breaks the rules, or what is played."""
        places = [*self._in_body(body, headers), *self._in_messages(body["messages"])]
        if places:
            self.refused += places
            return 400, {"error": {"message": f"canary at {places[0]}"}}
        number = len(self.said) + 1
        step = self._play(body["messages"])
        tools = body.get("tools") or [{"function": {"name": "none"}}]
        message = self.provider.message(step, number, tools[0]["function"]["name"])
        self.said.append(message)
        return 200, self.provider.answer(message, number, is_cut=step.is_cut)

    # -- the rules --------------------------------------------------------------------------------

    def _in_body(self, body: dict[str, Any], headers: Mapping[str, str]) -> Iterator[str]:
        provider = self.provider
        if not re.fullmatch("Bearer .+", headers.get("authorization", "")):
            yield "authorization"
        if body.get("model") != provider.model:
            yield "model"
        if provider.takes is not None:
            known = COMMON_FIELDS | provider.takes | set(provider.limits)
            yield from (name for name in body if name not in known)
        yield from (name for name in body.get("provider", {}) if name not in OPENROUTER_TERMS)
        if not any(type(body.get(name)) is int and body[name] > 0 for name in provider.limits):
            yield provider.limits[0]
        if json.dumps(body["messages"]).count('"cache_control":') > provider.most_marks:
            yield "cache_control"
        if body.get("tools") == []:
            yield "tools"
        for tool in body.get("tools", []):
            yield from _in_tool(tool["function"])

    def _in_messages(self, messages: list[Message]) -> Iterator[str]:
        open_ids: list[str] = []
        for position, message in enumerate(messages):
            place, role = f"messages[{position}]", message["role"]
            if role == "tool":
                if message.get("tool_call_id") not in open_ids:
                    yield f"{place}.tool_call_id"
                else:
                    open_ids.remove(message["tool_call_id"])
            elif open_ids:
                yield f"{place}: before the results of {open_ids}"
            if role == "assistant":
                open_ids = [call.get("id") for call in message.get("tool_calls", [])]
                yield from self._in_assistant(message, place)
            if role in self.provider.text_roles and isinstance(message.get("content"), list):
                yield f"{place}.content: parts"
        roles = [message["role"] for message in messages]
        if open_ids:
            yield f"the end: before the results of {open_ids}"
        if self.provider.is_ordered and ("tool", "user") in zip(roles, roles[1:], strict=False):
            yield "roles: user after tool"
        if self.provider.is_ordered and roles[-1] not in ("user", "tool"):
            yield f"roles: ends with {roles[-1]}"

    def _in_assistant(self, message: Message, place: str) -> Iterator[str]:
        provider, made = self.provider, message.get("tool_calls", [])
        if provider.message_fields is not None:
            yield from (f"{place}.{name}" for name in message.keys() - provider.message_fields)
        if not made and not message.get("content") and provider.says_something:
            yield f"{place}: says nothing"
        if made and _kind_of(message) not in (*provider.beside_calls, "words"):
            yield f"{place}.content: {_kind_of(message)}"
        for call in made:
            if provider.call_fields is not None:
                yield from (f"{place}.tool_calls.{n}" for n in call.keys() - provider.call_fields)
            if not re.fullmatch(provider.call_id_form, str(call.get("id"))):
                yield f"{place}.tool_calls.id"
            if not _is_object(call["function"]["arguments"]):
                yield f"{place}.tool_calls.arguments"
        ids = [call["id"] for call in made]
        for said in self.said:
            if made and ids == [call["id"] for call in said.get("tool_calls", [])]:
                for name in provider.repeats:
                    if _all_of(message, name) != _all_of(said, name):
                        yield f"{place}: does not repeat {name}"

    # -- the server -------------------------------------------------------------------------------

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
                status, answer = player.answer(body, headers)
                send(self, status, answer, dict(player.provider.headers))

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


def _in_tool(function: dict[str, Any]) -> Iterator[str]:
    """A tool is a function with a name of the usual form and a valid, plain schema."""
    parameters = function.get("parameters", {})
    if not FUNCTION_NAME.fullmatch(function["name"]):
        yield "tools.name"
    try:
        Draft7Validator.check_schema(parameters)
    except SchemaError:
        yield "tools.parameters"
    written = json.dumps(parameters)
    yield from (f"tools.{word}" for word in REFUSED_KEYWORDS if f'"{word}":' in written)
    if '"type": [' in written:
        yield "tools.type: several"


def _kind_of(message: Message) -> str:
    if "content" not in message:
        return "absent"
    if message["content"] is None:
        return "null"
    return "words" if message["content"] else "empty"


def _is_object(arguments: Any) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, TypeError):
        return False


def _all_of(message: Message, name: str) -> list[Any]:
    """What stands under a name in a message, and in each of its calls."""
    return [each.get(name) for each in (message, *message.get("tool_calls", []))]
