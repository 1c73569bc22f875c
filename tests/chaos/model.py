"""The model of the storm: a real HTTP server, in a process of its own, that notes all it says.

``python -m tests.chaos.model PORT LOG SEED``. It answers sessions, conversations and requests for
access; ``POST /mood`` changes how. One line of JSON for each request is in the log before the
answer is sent: who asked about which run, what came of its earlier calls, what it answers now. No
content is noted.
"""

import itertools
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from refine.llm.rehearsal.server import _Server as LoopbackServer
from tests.chaos.plan import MOODS

CALM = "calm"
_NONE_OF_OURS = 10**15
_FLOOD_OF_WORDS = "and so on, and so on; " * 50_000
_FLOOD_OF_CALLS = 3_000


class Answer(NamedTuple):
    """What is said, and what the log calls it.

    ``fault`` is how the answer fails, if it does; ``words`` and ``calls`` are what it says,
    ``given_as`` the model's name in it.
    """

    said: str
    words: str | None = None
    calls: tuple[tuple[str, dict[str, Any] | str], ...] = ()
    fault: str | None = None
    given_as: str | None = None
    seconds: float = 0.0


class PlayedModel:
    """What the model says to each request, by its mood."""

    def __init__(self, seed: int, log: Path) -> None:
        self.mood = CALM
        self._random = Random(seed)
        self._calls = itertools.count(1)
        self._lock = threading.Lock()
        self._log = log

    def answer(self, worker: str, body: dict[str, Any]) -> Answer:
        """Return the answer to a request, noted in the log."""
        with self._lock:
            given = self._answer(body)
            with self._log.open("a") as log:
                log.write(json.dumps(_noted(worker, body, given)) + "\n")
        return given

    def _answer(self, body: dict[str, Any]) -> Answer:
        random, kind = self._random, kind_of(body)
        usual = self._usual(kind, body)._replace(seconds=random.uniform(0.02, 0.4))
        if self.mood == "slow":
            return usual._replace(seconds=random.uniform(2, 12))
        if self.mood == CALM or random.random() < 0.3:
            return usual
        if self.mood == "failing":
            return Answer(f"fault: {(fault := random.choice(FAULTS))}", fault=fault)
        return (self._flood if self.mood == "flooding" else self._lie)(kind, body, usual)

    def _usual(self, kind: str, body: dict[str, Any]) -> Answer:
        if kind in ("consent", "access"):
            return Answer("yes", "YES, gladly.") if self._random.random() < 0.9 else _NO
        if kind == "conversation":
            return self._remember(body)
        return self._tidy(body)

    def _remember(self, body: dict[str, Any]) -> Answer:
        if any(message["role"] == "assistant" for message in body["messages"]):
            return Answer("words", "That is all.")
        said = f"They spoke of bees {next(self._calls)} times."
        return self._calling("save_memory", {"content": said})

    def _tidy(self, body: dict[str, Any]) -> Answer:
        ledger = ledger_of(body)
        free = [entry for entry in ledger if not entry.get("constitutional")]
        turns = sum(message["role"] == "assistant" for message in body["messages"])
        if len(free) < 3 or self._random.random() < turns / 5:
            return self._calling("refinement", {"action": "complete", "summary": "Tidied."})
        edits = [self._edit(free) for _ in range(self._random.choice((1, 1, 2)))]
        return self._calling("refinement", *edits)

    def _edit(self, free: list[dict[str, Any]]) -> dict[str, Any]:
        one, other = self._random.sample(free, 2)
        longest = max(one["content"], other["content"], key=len)
        match self._random.choices(("delete", "merge", "update", "protect", "search"), _OFTEN)[0]:
            case "delete":
                return {"action": "delete", "id": one["id"]}
            case "merge":
                both = [one["id"], other["id"]]
                return {"action": "consolidate", "ids": both, "content": longest}
            case "update":
                return {"action": "update", "id": one["id"], "content": one["content"].strip(".,;")}
            case "protect":
                return {"action": "protect", "id": one["id"]}
        return {"action": "search", "query": "bees"}

    def _lie(self, kind: str, body: dict[str, Any], usual: Answer) -> Answer:
        ids = [entry["id"] for entry in ledger_of(body)] or [_NONE_OF_OURS]
        locked = [entry["id"] for entry in ledger_of(body) if entry.get("constitutional")] or ids
        lies = [
            usual._replace(said="lie: another model", given_as="somebody/else"),
            Answer("lie: nothing", None),
            self._calling(
                "refinement",
                {"action": "delete", "id": locked[0]},
                {"action": "delete", "id": _NONE_OF_OURS},
                {"action": "update", "id": locked[-1], "content": "Nothing of that ever was."},
                said="lie: what it may not",
            ),
            self._calling("refinement", '{"action": "delete", "id": NaN}', said="lie: no JSON"),
            self._calling("forget_everything", {"id": ids[0]}, said="lie: no such tool"),
        ]
        return self._random.choice(lies)

    def _flood(self, kind: str, body: dict[str, Any], usual: Answer) -> Answer:
        if kind in ("consent", "access") or self._random.random() < 0.3:
            return Answer("flood: words", f"NO, {_FLOOD_OF_WORDS}")
        search = {"action": "search", "query": "bees"}
        return self._calling("refinement", *[search] * _FLOOD_OF_CALLS, said="flood: calls")

    def _calling(self, tool: str, *given: dict[str, Any] | str, said: str = "calls") -> Answer:
        named = tuple((f"{tool}|call-{next(self._calls)}", each) for each in given)
        return Answer(said, None, named)


FAULTS = ("500", "429", "502", "hang up", "half an answer", "an error in 200", "no JSON")
_NO = Answer("no", "NO, thank you.")
# delete, merge, update, protect, search
_OFTEN = (5, 4, 3, 0.3, 1)


def kind_of(body: dict[str, Any]) -> str:
    """Return what is asked: consent, tidy, conversation or access."""
    tools = [tool["function"]["name"] for tool in body.get("tools", ())]
    if not tools:
        return "access"
    if "refinement" not in tools:
        return "conversation"
    has_answered = any(message["role"] == "assistant" for message in body["messages"])
    is_asked_again = body.get("tool_choice") == "none"
    return "tidy" if has_answered and not is_asked_again else "consent"


def ledger_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the memories that the request shows."""
    first = next(message for message in body["messages"] if message["role"] == "user")
    lines = str(first["content"]).split("\n")
    return [json.loads(line) for line in lines if line.startswith('{"id":')]


def _noted(worker: str, body: dict[str, Any], given: Answer) -> dict[str, Any]:
    calls = [[name.partition("|")[2], *_shown(asked)] for name, asked in given.calls[:60]]
    return {
        "at": time.time(),
        "worker": worker,
        "run": body.get("session_id"),
        "kind": kind_of(body),
        "seen": _results(body),
        "said": given.said,
        "calls": calls,
    }


def _shown(asked: dict[str, Any] | str) -> tuple[str, list[int]]:
    """Return the action and the ids of a call; no content."""
    if isinstance(asked, str):
        return "unreadable", []
    ids = asked.get("ids") or [asked[name] for name in ("id",) if name in asked]
    return str(asked.get("action", "other")), ids


def _results(body: dict[str, Any]) -> list[list[str]]:
    """Return what the model is told of its last calls: each one's id and the type of its result."""
    told: list[list[str]] = []
    for message in body["messages"]:
        if message["role"] == "assistant":
            told = []
        elif message["role"] == "tool":
            result = json.loads(message["content"])
            told.append([message["tool_call_id"], result["type"], str(result.get("id", ""))])
    return told[:60]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    model: PlayedModel

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/mood":
            self.model.mood = body["mood"]
            self._send(200, b"{}")
            return
        given = self.model.answer(self.path.split("/")[1], body)
        time.sleep(given.seconds)
        if given.fault is None:
            self._send(200, _completion(body["model"], given))
        else:
            self._fail(given.fault, _completion(body["model"], given))

    def do_GET(self) -> None:
        self._send(404, b'{"error": {"code": 404, "message": "not found"}}')

    def _fail(self, fault: str, usual: bytes) -> None:
        match fault:
            case "500" | "429" | "502":
                self._send(int(fault), b"<p>busy</p>", {"Retry-After": "1"})
            case "an error in 200":
                self._send(200, b'{"error": {"code": 503, "message": "overloaded"}}')
            case "no JSON":
                self._send(200, b"one moment, please")
            case "half an answer":
                self._send(200, usual[: len(usual) // 2], length=len(usual))
        self.close_connection = True

    def _send(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str] | None = None,
        length: int | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def _completion(model: str, given: Answer) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": given.words}
    if given.calls:
        message["tool_calls"] = [_call(name, asked) for name, asked in given.calls]
    finish = "tool_calls" if given.calls else "stop"
    choice = {"index": 0, "finish_reason": finish, "message": message}
    completion = {
        "id": f"gen-{time.time_ns()}",
        "object": "chat.completion",
        "model": given.given_as or model,
        "choices": [choice],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110, "cost": 0},
    }
    return json.dumps(completion).encode()


def _call(name: str, asked: dict[str, Any] | str) -> dict[str, Any]:
    tool, _, id_ = name.partition("|")
    arguments = asked if isinstance(asked, str) else json.dumps(asked)
    return {"id": id_, "type": "function", "function": {"name": tool, "arguments": arguments}}


def main(port: str, log: str, seed: str) -> None:
    """Answer until killed."""
    handler = type("Handler", (_Handler,), {"model": PlayedModel(int(seed), Path(log))})
    server = LoopbackServer(("127.0.0.1", int(port)), handler)
    server.daemon_threads = True
    server.serve_forever()


assert set(MOODS) == {"slow", "lying", "flooding", "failing"}

if __name__ == "__main__":
    main(*sys.argv[1:])
