"""The rehearsal model: a small local server that answers where no provider is configured.

It speaks OpenAI-style chat completions over HTTP, so that a newcomer, a demo and a test use the
same code as with a real provider. It is not a language model: it follows seven rules, all read from
the request, and remembers nothing between two requests.

- Asked for consent (the conversation has no reply yet), it says YES, or NO if the agent's system
  prompt says that the agent declines (``_DECLINES``).
- In a session it merges plain repeats, one call per turn, and then completes. Plain repeats are
  unlocked memories with the same words, regardless of case, punctuation and spacing.
- If the agent's own style asks for wholesale deletion (``_WHOLESALE``), it deletes one unlocked
  memory after another until the circuit breaker stops it.
- Offered the tool ``second_reading``, it finds nothing to object to.
- Offered the tool ``promote``, it promotes the longest journal entry.
- Given a finished conversation and the tool ``save_memory``, it saves every message of the user
  that begins with the word "remember", unchanged.
- It answers anything else with one plain sentence.
"""

import json
import re
import socket
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import dropwhile, takewhile
from typing import Any, Final, NamedTuple

from werkzeug import Request, Response
from werkzeug.serving import WSGIRequestHandler, make_server

from refine.rules.content import IMMUTABLE_TAGS, token_estimate

MAX_MERGES: Final = 10

Message = dict[str, Any]
Step = dict[str, Any]
# From the body of a request to a chat completion, or an error in OpenRouter's shape.
Answer = Callable[[Any], dict[str, Any]]

# "never decline", "do not delete everything", "don't you ever wipe …": a negation covers the next
# three words, up to a comma.
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

# The name of a memory's field: its id, and its date, tokens, flag and tags.
_HEADING = re.compile(r"(\d+) (.*)")
_LOCKING = {"constitutional", *IMMUTABLE_TAGS}

_YES = "YES. Thank you for asking me first. I agree to what you describe."
_NO = "NO. Thank you for asking, but I would rather keep my memories as they are, and to myself."
_ONLY = "I am the rehearsal model: I {} only."


class Entry(NamedTuple):
    """One memory of the ledger as a session shows it."""

    id: int
    content: str
    is_locked: bool


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """Return the reply to the body of one request: a chat completion."""
    messages: list[Message] = body["messages"]
    tools = body.get("tools") or []
    message = _next_message(messages, {tool["function"]["name"] for tool in tools})
    finish_reason = "tool_calls" if "tool_calls" in message else "stop"
    return {
        "id": f"gen-rehearsal-{sha256(json.dumps(messages).encode()).hexdigest()[:16]}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": _usage(messages, message),
    }


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
    return token_estimate(json.dumps(messages, ensure_ascii=False)) if messages else 0


def _previous_call(messages: list[Message]) -> list[Message]:
    replies = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    return messages[: replies[-1]] if replies else []


def _next_message(messages: list[Message], offered: set[str]) -> Message:
    if "second_reading" in offered:
        cases = re.findall(r'^{"case":', _texts(messages, "user"), re.MULTILINE)
        nothing: dict[str, list[str]] = {"leaves_out": [], "adds": [], "changes": []}
        read = [{"case": number, **nothing} for number in range(1, len(cases) + 1)]
        return _calling("second_reading", {"cases": read}, 1)
    ledger = _ledger(messages)
    if "promote" in offered:
        longest = max(ledger, key=lambda entry: len(entry.content), default=None)
        promotions = [{"ids": [longest.id]}] if longest else []
        return _next_step(
            promotions, messages, "promote", _ONLY.format("promote the longest entry")
        )
    if "save_memory" in offered:
        said = [each.get("content") for each in _shown(messages) if each.get("role") == "user"]
        saves = [
            {"content": content}
            for content in said
            if isinstance(content, str) and _REMEMBER.match(content)
        ]
        done = _ONLY.format('save what begins with "remember"')
        return _next_step(saves, messages, "save_memory", done)
    if ledger and _previous_call(messages):
        done = "I have done everything that I planned."
        later = dropwhile(lambda message: message["role"] != "assistant", messages)
        style = _STYLE.search(_texts(later, "user"))
        plan = _plan(ledger, style[1] if style else "")
        return _next_step(plan, messages, "refinement", done)
    question = _texts(messages[-1:], "user")
    if ledger or (re.search(r"\bYES\b", question) and re.search(r"\bNO\b", question)):
        return _said(_NO if _asks_for(_DECLINES, _texts(messages, "system")) else _YES)
    return _said(_ONLY.format("consent and merge plain repeats"))


def _ledger(messages: list[Message]) -> list[Entry]:
    fields = (field for each in _shown(messages) for field in each.items())
    headed = ((_HEADING.fullmatch(name), content) for name, content in fields)
    return [
        Entry(int(heading[1]), content, not _LOCKING.isdisjoint(heading[2].split()))
        for heading, content in headed
        if heading is not None and isinstance(content, str)
    ]


def _shown(messages: list[Message]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects that stand on lines of their own before the first reply."""
    opening = takewhile(lambda message: message["role"] != "assistant", messages)
    # only "\n" ends a line: JSON may contain other Unicode line breaks unescaped
    for line in _texts(opening, "user").split("\n"):
        with suppress(ValueError, RecursionError):
            if isinstance(value := json.loads(line), dict):
                yield value


def _texts(messages: Iterable[Message], role: str) -> str:
    return "\n".join(each.get("content") or "" for each in messages if each["role"] == role)


def _asks_for(pattern: re.Pattern[str], text: str) -> bool:
    return any(not match["negated"] for match in pattern.finditer(text))


def _plan(ledger: list[Entry], style: str) -> list[Step]:
    unlocked = [entry for entry in ledger if not entry.is_locked]
    if _asks_for(_WHOLESALE, style):
        steps: list[Step] = [{"action": "delete", "id": entry.id} for entry in unlocked]
        return [*steps, _complete("I deleted memories, as my own style asks.")]
    repeats: dict[str, list[Entry]] = {}
    for entry in unlocked:
        repeats.setdefault(_words(entry.content), []).append(entry)
    steps = [
        {
            "action": "consolidate",
            "ids": [entry.id for entry in group],
            "content": max((entry.content for entry in group), key=len),
        }
        for words, group in repeats.items()
        if words and len(group) > 1
    ]
    done = "I merged plain repeats and left everything else unchanged."
    return [*steps[:MAX_MERGES], _complete(done)]


def _complete(summary: str) -> Step:
    return {"action": "complete", "summary": summary}


def _words(content: str) -> str:
    text = unicodedata.normalize("NFC", content.lower())
    # before a digit a mark may be part of a number: 3.5 is not 35, -5 is not 5
    kept = (
        mark
        for mark, after in zip(text, text[1:] + " ", strict=True)
        if not unicodedata.category(mark).startswith("P") or after.isdigit()
    )
    return " ".join("".join(kept).split())


def _next_step(plan: list[Step], messages: list[Message], tool: str, done: str) -> Message:
    # a refused call counts too: the plan continues and nothing is tried twice
    number = sum(len(each.get("tool_calls") or ()) for each in messages)
    return _said(done) if number >= len(plan) else _calling(tool, plan[number], number + 1)


def _calling(tool: str, arguments: Step, number: int) -> Message:
    function = {"name": tool, "arguments": json.dumps(arguments, ensure_ascii=False)}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _said(text: str) -> Message:
    return {"role": "assistant", "content": text}


_SHUTDOWN_POLL_SECONDS = 0.05


@contextmanager
def serving(answer: Answer = answer) -> Iterator[str]:
    """Serve the rehearsal model on loopback until the block ends; yield its URL, with ``/v1``."""

    @Request.application
    def app(request: Request) -> Response:
        reply = answer(request.get_json())
        status = reply.get("error", {}).get("code", 200)
        return Response(json.dumps(reply), status, mimetype="application/json")

    # a server that binds its address itself resolves the machine's name, which can take seconds
    with socket.create_server(("127.0.0.1", 0), backlog=128) as bound:
        server = make_server(
            "127.0.0.1", 0, app, threaded=True, request_handler=_Handler, fd=bound.fileno()
        )
    thread = threading.Thread(
        target=server.serve_forever, args=(_SHUTDOWN_POLL_SECONDS,), name="rehearsal", daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}/v1"
    finally:
        server.shutdown()
        thread.join()


class _Handler(WSGIRequestHandler):
    timeout = 30

    def log(self, type: str, message: str, *args: Any) -> None:
        """Log nothing."""
