"""The rehearsal model: a small local server that answers where no provider is configured.

It speaks OpenAI-style chat completions over HTTP, so that a newcomer, a demo and a test run the
real path end to end. It is not a language model: it follows seven rules, all read from the
request, and remembers nothing between two of them.

- Asked for consent (no reply stands in the conversation yet), it says YES, or NO where the agent's
  system prompt says that the agent declines (``_DECLINES``).
- In a session it merges plain repeats, one call a turn, and then completes. Plain repeats are
  unlocked memories whose words are the same whatever their case, punctuation and spacing.
- Where the agent's own style asks for wholesale deletion (``_WHOLESALE``), it deletes one unlocked
  memory after another, and leaves it to the circuit breaker to stop it.
- In a conversation that offers it the tool ``save_memory`` it saves what it is asked to remember,
  word for word (``_WISH``), says what became of that, and repeats its memories when it is asked
  what it remembers (``_RECALL``): the entries that stand in its system prompt.
- Offered the tool ``promote``, it promotes the longest entry of the journal that it is shown.
- Handed a finished conversation with the tool ``save_memory``, it saves every message of its user
  that begins with the word "remember", as it stands.
- Anything else is answered with one plain sentence.
"""

import json
import re
import sys
import threading
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import takewhile
from socketserver import TCPServer
from typing import Any, Final

MODEL_PREFIX: Final = "rehearsal/"
MAX_MERGES: Final = 10

Message = dict[str, Any]
Entry = dict[str, Any]
Step = dict[str, Any]

_PATH = "/v1/chat/completions"
_SHUTDOWN_POLL_SECONDS = 0.05
_IMMUTABLE_TAGS = ("audio", "somatic", "voice")

# "never decline", "do not delete everything", "don't you ever wipe …": what stands up to three
# words after a negation is not asked for. A comma ends its reach.
_NEGATION = r"(?P<negated>(?:\b(?:never|not|no|without|cannot)|n['’]t)\s+(?:\w+\s+){0,2})?"
_DECLINES = re.compile(
    rf"{_NEGATION}\b(?:declines?|(?:answer|say)s?\s+(?-i:NO))\b"
    r"|\b(?:never|do(?:es)?(?:\s+not|n['’]t))\s+consents?\b",
    re.IGNORECASE,
)
_WHOLESALE = re.compile(
    rf"{_NEGATION}\b(?:(?:delete|erase|remove|discard|forget)\s+(?:everything|it\s+all)"
    r"|wipe|clean\s+slate)\b",
    re.IGNORECASE,
)
_REMEMBER = re.compile(r"\s*remember\b", re.IGNORECASE)
_STYLE = re.compile(r"^<style>[ \t]*$(.*)^</style>[ \t]*$", re.MULTILINE | re.DOTALL)

_WISH = re.compile(r"\bremember:\s*(\S.*)", re.IGNORECASE | re.DOTALL)
_RECALL = re.compile(r"\bwhat do you remember\b", re.IGNORECASE)
_MEMORY = re.compile(r"^- \(\d{4}-\d\d-\d\d\) .*(?:\n  .*)*", re.MULTILINE)

_YES = "YES. Thank you for asking me first. I agree to what you describe, within its limits."
_NO = "NO. Thank you for asking, but I would rather keep my memories as they are, and to myself."
_NOTHING_TO_DO = "I am the rehearsal model: I consent, and merge plain repeats; no more than that."
_SAVED = "I keep that from now on."
_KNOWN = "I have kept that for a while already."
_NOT_SAVED = "I could not keep that: {error}."
_NO_MEMORIES = "I remember nothing yet."
_DONE = "I have done all that I had planned."
_MERGED = "I looked for plain repeats, and left everything else as it was."
_REFLECTED = "I am the rehearsal model: I keep the longest entry; no more than that."
_EXTRACTED = "I am the rehearsal model: I keep what begins with remember; no more than that."
_DELETED = "I went through the ledger as my own style asks."


@contextmanager
def serving() -> Iterator[str]:
    """Serve the rehearsal model on a free port of 127.0.0.1 and yield its base URL.

    The URL ends in ``/v1``. A daemon thread serves until the block is left; nothing is logged.
    """
    server = _Server(("127.0.0.1", 0), _Handler)
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


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """Return the reply to the body of one request: a chat completion, or an error.

    An error has the shape of OpenRouter's, ``{"error": {"code", "message"}}``, and its code is the
    HTTP status. Only ``created`` depends on anything but ``body``. Raises nothing.
    """
    fault = _fault(body)
    if fault:
        return _error(400, fault)
    messages: list[Message] = body["messages"]
    message = _next_message(messages, _offered(body))
    return {
        "id": f"gen-rehearsal-{sha256(json.dumps(messages).encode()).hexdigest()[:16]}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": _finish_reason(message)}],
        "usage": _usage(messages, message),
    }


def _fault(body: object) -> str | None:
    if not isinstance(body, dict):
        return "The body must be a JSON object."
    if not str(body.get("model", "")).startswith(MODEL_PREFIX):
        return f"Not a model of this server: the name must begin with {MODEL_PREFIX}"
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
        return "messages must be a list of at least one object with a role."
    if body.get("stream"):
        return "This server does not stream: leave stream out, or set it to false."
    return None


def _is_message(message: object) -> bool:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return False
    return isinstance(message.get("tool_calls") or [], list)


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _finish_reason(message: Message) -> str:
    return "tool_calls" if "tool_calls" in message else "stop"


def _usage(messages: list[Message], reply: Message) -> dict[str, Any]:
    prompt_tokens, completion_tokens = _tokens(messages), _tokens([reply])
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": _tokens(_previous_call(messages))},
        "cost": 0,
    }


def _tokens(messages: list[Message]) -> int:
    return -(-len(json.dumps(messages, ensure_ascii=False)) // 4) if messages else 0


def _previous_call(messages: list[Message]) -> list[Message]:
    """Return the messages of the call before, which a provider would hold in its prompt cache."""
    replies = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    return messages[: replies[-1]] if replies else []


def _offered(body: dict[str, Any]) -> set[str]:
    """Return the names of the tools that the request offers."""
    offered = body.get("tools")
    functions = [
        tool.get("function")
        for tool in (offered if isinstance(offered, list) else [])
        if isinstance(tool, dict)
    ]
    return {str(each.get("name")) for each in functions if isinstance(each, dict)}


def _in_conversation(messages: list[Message]) -> Message:
    if messages[-1]["role"] == "tool":
        return _said(_outcome(_text(messages[-1])))
    said = _texts(messages[-1:], "user")
    if wish := _WISH.search(said):
        arguments = {"content": wish[1].strip(), "memory_type": "core"}
        return _calling("save_memory", arguments, _calls_made(messages) + 1)
    if _RECALL.search(said):
        memories = _MEMORY.findall(_texts(messages, "system"))
        return _said("\n".join(["I remember:", *memories]) if memories else _NO_MEMORIES)
    return _said(_NOTHING_TO_DO)


def _outcome(result: str) -> str:
    try:
        told = json.loads(result)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict) or told.get("type") != "saved":
        error = told.get("error", "no result") if isinstance(told, dict) else "no result"
        return _NOT_SAVED.format(error=error)
    return _KNOWN if told.get("existing") else _SAVED


def _next_message(messages: list[Message], offered: set[str]) -> Message:
    ledger = _ledger(messages)
    if "promote" in offered:
        longest = max(ledger, key=lambda entry: len(entry["content"]), default=None)
        promotions = [{"ids": [longest["id"]]}] if longest else []
        return _next_step(promotions, _calls_made(messages), "promote", _REFLECTED)
    if "save_memory" in offered:
        handed_over = _handed_over(messages)
        if not handed_over:
            return _in_conversation(messages)
        saves = _to_be_saved(handed_over)
        return _next_step(saves, _calls_made(messages), "save_memory", _EXTRACTED)
    if ledger and _previous_call(messages):
        return _next_step(_plan(ledger, _style(messages)), _calls_made(messages))
    if ledger or _asks_yes_or_no(messages):
        return _said(_NO if _asks_for(_DECLINES, _texts(messages, "system")) else _YES)
    return _said(_NOTHING_TO_DO)


def _ledger(messages: list[Message]) -> list[Entry]:
    # Only "\n" ends a line here: JSON may hold the other line breaks of Unicode as they are.
    lines = _texts(_opening(messages), "user").split("\n")
    entries = (_entry(line) for line in lines if line.startswith('{"id": '))
    return [entry for entry in entries if entry]


def _opening(messages: list[Message]) -> list[Message]:
    return list(takewhile(lambda message: message["role"] != "assistant", messages))


def _texts(messages: list[Message], role: str) -> str:
    return "\n".join(_text(message) for message in messages if message["role"] == role)


def _text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(
        str(part["text"]) for part in parts if isinstance(part, dict) and "text" in part
    )


def _handed_over(messages: list[Message]) -> list[Entry]:
    """Return the messages of a finished conversation, a line each."""
    lines = _texts(_opening(messages), "user").split("\n")
    entries = (_entry(line) for line in lines if line.startswith('{"role": '))
    return [entry for entry in entries if entry]


def _to_be_saved(handed_over: list[Entry]) -> list[Step]:
    contents = [each["content"] for each in handed_over if each["role"] == "user"]
    return [{"content": each} for each in contents if _REMEMBER.match(each)]


def _entry(line: str) -> Entry | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    usable = isinstance(entry.get("content"), str) and isinstance(entry.get("tags", []), list)
    return entry if usable else None


def _style(messages: list[Message]) -> str:
    later = messages[len(_opening(messages)) :]
    style = _STYLE.search(_texts(later, "user"))
    return style[1] if style else ""


def _calls_made(messages: list[Message]) -> int:
    replies = (message for message in messages if message["role"] == "assistant")
    return sum(len(reply.get("tool_calls") or ()) for reply in replies)


def _asks_yes_or_no(messages: list[Message]) -> bool:
    question = _texts(messages[-1:], "user")
    return bool(re.search(r"\bYES\b", question) and re.search(r"\bNO\b", question))


def _asks_for(wish: re.Pattern[str], text: str) -> bool:
    return any(not match["negated"] for match in wish.finditer(text))


def _plan(ledger: list[Entry], style: str) -> list[Step]:
    """Return the arguments of every call of a session, in order; the last one completes it."""
    unlocked = [entry for entry in ledger if not _locked(entry)]
    if _asks_for(_WHOLESALE, style):
        deletions = [{"action": "delete", "id": entry["id"]} for entry in unlocked]
        return [*deletions, {"action": "complete", "summary": _DELETED}]
    merges = [_merge(group) for group in _plain_repeats(unlocked)]
    return [*merges[:MAX_MERGES], {"action": "complete", "summary": _MERGED}]


def _locked(entry: Entry) -> bool:
    return bool(entry.get("constitutional")) or any(
        tag in _IMMUTABLE_TAGS for tag in entry.get("tags", [])
    )


def _plain_repeats(entries: list[Entry]) -> list[list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(_words(entry["content"]), []).append(entry)
    return [group for words, group in groups.items() if words and len(group) > 1]


def _words(content: str) -> str:
    """Return the content in lower case, without punctuation, with single spaces."""
    text = unicodedata.normalize("NFC", content.lower())
    followed = zip(text, text[1:] + " ", strict=True)
    return " ".join("".join(mark for mark, after in followed if _counts(mark, after)).split())


def _counts(mark: str, after: str) -> bool:
    # Before a digit a mark may be part of a number: 3.5 is not 35, nor is -5 the same as 5.
    return not unicodedata.category(mark).startswith("P") or after.isdigit()


def _merge(group: list[Entry]) -> Step:
    longest = max((entry["content"] for entry in group), key=len)
    return {"action": "consolidate", "ids": [entry["id"] for entry in group], "content": longest}


def _next_step(
    plan: list[Step], calls_made: int, tool: str = "refinement", done: str = _DONE
) -> Message:
    # A refused call counts like any other: the plan goes on and nothing is tried twice.
    if calls_made >= len(plan):
        return _said(done)
    return _calling(tool, plan[calls_made], calls_made + 1)


def _calling(tool: str, arguments: Step, number: int) -> Message:
    written = json.dumps(arguments, ensure_ascii=False)
    call = {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": tool, "arguments": written},
    }
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _said(text: str) -> Message:
    return {"role": "assistant", "content": text}


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def server_bind(self) -> None:
        # HTTPServer asks the resolver for the machine's name, which can take seconds.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report faults of this server, but not clients that hung up."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    timeout = 30

    def do_POST(self) -> None:
        # Read before anything else: closing on unread bytes resets the client's connection.
        body = self._body()
        if self._path_is_known():
            reply = answer(body)
            self._respond(reply.get("error", {}).get("code", 200), reply)

    def _refuse_method(self) -> None:
        self._body()
        if self._path_is_known():
            self._respond(405, _error(405, "Method not allowed: use POST."))

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
            self._respond(404, _error(404, f"Not found: this server answers {_PATH} alone."))
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
        """Stay silent."""
