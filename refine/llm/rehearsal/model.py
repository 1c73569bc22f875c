"""What the rehearsal model answers. It is not a language model.

It follows seven rules, all read from the request, and remembers nothing between two requests:

- Asked for consent (the conversation has no reply yet), it says YES, or NO if the agent's system
  prompt says that the agent declines (``_DECLINES``).
- In a session it merges plain repeats, one call per turn, and then completes. Plain repeats are
  unlocked memories with the same words, regardless of case, punctuation and spacing.
- If the agent's own style asks for wholesale deletion (``_WHOLESALE``), it deletes one unlocked
  memory after another until the circuit breaker stops it.
- In a conversation that offers the tool ``save_memory`` it saves what it is asked to remember, word
  for word (``_REQUEST``), reports the result, and lists the memories in its system prompt when
  asked what it remembers (``_RECALL``).
- Offered the tool ``promote``, it promotes the longest journal entry.
- Given a finished conversation and the tool ``save_memory``, it saves every message of the user
  that begins with the word "remember", unchanged.
- It answers anything else with one plain sentence.
"""

import json
import re
import time
import unicodedata
from hashlib import sha256
from itertools import takewhile
from typing import Any, Final

from refine.rules.content import IMMUTABLE_TAGS
from refine.rules.tokens import token_estimate

MAX_MERGES: Final = 10

Message = dict[str, Any]
Entry = dict[str, Any]
Step = dict[str, Any]

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

_REQUEST = re.compile(r"\bremember:\s*(\S.*)", re.IGNORECASE | re.DOTALL)
_RECALL = re.compile(r"\bwhat do you remember\b", re.IGNORECASE)
_MEMORY = re.compile(r"^- \(\d{4}-\d\d-\d\d\) .*(?:\n  .*)*", re.MULTILINE)

_YES = "YES. Thank you for asking me first. I agree to what you describe."
_NO = "NO. Thank you for asking, but I would rather keep my memories as they are, and to myself."
_NO_RULE = "I am the rehearsal model: I consent and merge plain repeats only."
_SAVED = "I will remember that."
_KNOWN = "I remember that already."
_NOT_SAVED = "I could not save that: {error}."
_NO_MEMORIES = "I remember nothing yet."
_DONE = "I have done everything that I planned."
_MERGED = "I merged plain repeats and left everything else unchanged."
_REFLECTED = "I am the rehearsal model: I promote the longest entry only."
_EXTRACTED = 'I am the rehearsal model: I save what begins with "remember" only.'
_DELETED = "I deleted memories, as my own style asks."


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """Return the reply to the body of one request: a chat completion.

    Everything but ``created`` follows from ``body``.
    """
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
    """Return the messages of the previous call, which a provider would have in its prompt cache."""
    replies = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    return messages[: replies[-1]] if replies else []


def _reply_in_conversation(messages: list[Message]) -> Message:
    if messages[-1]["role"] == "tool":
        return _said(_outcome(_text(messages[-1])))
    said = _texts(messages[-1:], "user")
    if request := _REQUEST.search(said):
        arguments = {"content": request[1].strip(), "memory_type": "core"}
        return _calling("save_memory", arguments, _calls_made(messages) + 1)
    if _RECALL.search(said):
        memories = _MEMORY.findall(_texts(messages, "system"))
        return _said("\n".join(["I remember:", *memories]) if memories else _NO_MEMORIES)
    return _said(_NO_RULE)


def _outcome(result: str) -> str:
    outcome = json.loads(result)
    if outcome["type"] != "saved":
        return _NOT_SAVED.format(error=outcome["error"])
    return _KNOWN if outcome.get("existing") else _SAVED


def _next_message(messages: list[Message], offered: set[str]) -> Message:
    ledger = _entries(messages, '{"id":')
    if "promote" in offered:
        longest = max(ledger, key=lambda entry: len(entry["content"]), default=None)
        promotions = [{"ids": [longest["id"]]}] if longest else []
        return _next_step(promotions, _calls_made(messages), "promote", _REFLECTED)
    if "save_memory" in offered:
        conversation = _entries(messages, '{"role":')
        if not conversation:
            return _reply_in_conversation(messages)
        saves = _saves(conversation)
        return _next_step(saves, _calls_made(messages), "save_memory", _EXTRACTED)
    if ledger and _previous_call(messages):
        return _next_step(_plan(ledger, _style(messages)), _calls_made(messages))
    if ledger or _asks_yes_or_no(messages):
        return _said(_NO if _asks_for(_DECLINES, _texts(messages, "system")) else _YES)
    return _said(_NO_RULE)


def _entries(messages: list[Message], start: str) -> list[Entry]:
    """Return the memories or messages of the request, which come one per line."""
    # only "\n" ends a line: JSON may contain other Unicode line breaks unescaped
    lines = _texts(_opening(messages), "user").split("\n")
    entries = (_entry(line) for line in lines if line.startswith(start))
    return [entry for entry in entries if entry]


def _opening(messages: list[Message]) -> list[Message]:
    return list(takewhile(lambda message: message["role"] != "assistant", messages))


def _texts(messages: list[Message], role: str) -> str:
    return "\n".join(_text(message) for message in messages if message["role"] == role)


def _text(message: Message) -> str:
    return message.get("content") or ""


def _saves(conversation: list[Entry]) -> list[Step]:
    contents = [each["content"] for each in conversation if each["role"] == "user"]
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


def _asks_for(pattern: re.Pattern[str], text: str) -> bool:
    return any(not match["negated"] for match in pattern.finditer(text))


def _plan(ledger: list[Entry], style: str) -> list[Step]:
    """Return the arguments of all calls of a session in order; the last one completes it."""
    unlocked = [entry for entry in ledger if not _locked(entry)]
    if _asks_for(_WHOLESALE, style):
        deletions = [{"action": "delete", "id": entry["id"]} for entry in unlocked]
        return [*deletions, {"action": "complete", "summary": _DELETED}]
    merges = [_merge(group) for group in _plain_repeats(unlocked)]
    return [*merges[:MAX_MERGES], {"action": "complete", "summary": _MERGED}]


def _locked(entry: Entry) -> bool:
    has_locked_tag = any(tag in IMMUTABLE_TAGS for tag in entry.get("tags", []))
    return bool(entry.get("constitutional")) or has_locked_tag


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
    # before a digit a mark may be part of a number: 3.5 is not 35, -5 is not 5
    return not unicodedata.category(mark).startswith("P") or after.isdigit()


def _merge(group: list[Entry]) -> Step:
    longest = max((entry["content"] for entry in group), key=len)
    return {"action": "consolidate", "ids": [entry["id"] for entry in group], "content": longest}


def _next_step(
    plan: list[Step], calls_made: int, tool: str = "refinement", done: str = _DONE
) -> Message:
    # a refused call counts too: the plan continues and nothing is tried twice
    if calls_made >= len(plan):
        return _said(done)
    return _calling(tool, plan[calls_made], calls_made + 1)


def _calling(tool: str, arguments: Step, number: int) -> Message:
    function = {"name": tool, "arguments": json.dumps(arguments, ensure_ascii=False)}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _said(text: str) -> Message:
    return {"role": "assistant", "content": text}
