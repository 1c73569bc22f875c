"""Parses replies of model servers, in every shape that providers were seen to send."""

import json
from decimal import Decimal, InvalidOperation
from typing import Any

from refine.errors import InvalidValue, ProviderError
from refine.llm.messages import Message, Reply, ToolCall, Usage
from refine.rules.content import sanitized
from refine.rules.tool_arguments import parse_arguments

# no call is larger; a higher figure is ignored
_MAX_TOKENS = 10_000_000

# sent back in the next call: some providers refuse it if reasoning is changed or missing
_KEPT_IN_HISTORY = ("content", "tool_calls", "reasoning", "reasoning_details")


class Unusable(Exception):
    """The answer cannot be used; asking again may help."""

    def __init__(self, message: str, kind: str) -> None:
        self.kind = kind
        super().__init__(message)


def parse_reply(body: bytes) -> Reply:
    """Return the model's reply.

    Raises Unusable where another attempt may help (an error inside a 200, no choices, a cut body),
    ProviderError if the provider altered what the model was shown.
    """
    answer = _parsed(body)
    choice = _choice(answer)
    _refuse_altered_prompt(answer)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise Unusable("the model's server sent a choice without a message", "empty_reply")
    is_cut = choice.get("finish_reason") == "length"
    tool_calls = _tool_calls(message, is_cut=is_cut)
    return Reply(
        message=_for_history(message, tool_calls),
        text=_text(message.get("content")),
        tool_calls=tool_calls,
        model=_string(answer.get("model")),
        is_cut=is_cut,
        usage=_usage(answer.get("usage")),
        generation_id=_string(answer.get("id")),
    )


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        message = "the model's server sent invalid or incomplete JSON"
        raise Unusable(message, "invalid_reply") from None
    if not isinstance(answer, dict):
        raise Unusable("the model's server sent unexpected JSON", "invalid_reply")
    return answer


def _choice(answer: dict[str, Any]) -> dict[str, Any]:
    if answer.get("error"):
        raise Unusable("the model's server sent an error inside its answer", "provider_error")
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        raise Unusable("the model's server sent no choices", "empty_reply")
    if choice.get("error") or choice.get("finish_reason") == "error":
        raise Unusable("the provider failed in the middle of its answer", "provider_error")
    return choice


def _refuse_altered_prompt(answer: dict[str, Any]) -> None:
    """An agent must not tidy text that a provider redacted or compressed on the way."""
    stages = _object(answer.get("openrouter_metadata")).get("pipeline")
    for stage in stages if isinstance(stages, list) else []:
        named = json.dumps(stage).casefold()
        if "guardrail" in named or "compress" in named:
            raise ProviderError(
                "the provider passed the request through a guardrail or compression stage, which "
                "may have altered the memories; switch it off for this key",
                kind="altered_prompt",
            )


def _text(content: Any) -> str | None:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "".join(part for part in parts if isinstance(part, str)) or None
    # text cut in the middle of an emoji ends in half a surrogate pair
    return sanitized(content) if isinstance(content, str) else None


def _tool_calls(message: dict[str, Any], *, is_cut: bool) -> tuple[ToolCall, ...]:
    written = message.get("tool_calls")
    calls: list[ToolCall] = []
    for position, call in enumerate(written if isinstance(written, list) else []):
        taken = [earlier.id for earlier in calls]
        calls.append(_tool_call(_object(call), position, taken, is_cut))
    return tuple(calls)


def _tool_call(call: dict[str, Any], position: int, taken: list[str], is_cut: bool) -> ToolCall:
    problems = []
    if call.get("id") in taken:
        problems.append("the id of this tool call was already used in this answer")
    call_id = _string(call.get("id")) or f"call_{position}"
    while call_id in taken:
        call_id += f"_{position}"
    if is_cut:
        problems.append("the answer was cut off at the output limit; send a shorter call")
    function = _object(call.get("function"))
    arguments: dict[str, Any] = {}
    try:
        arguments = parse_arguments(function.get("arguments"))
    except InvalidValue as error:
        problems.append(str(error))
    name = _string(function.get("name")) or ""
    if not name:
        problems.append("a tool call must name a function")
    return ToolCall(call_id, name, arguments, problems[0] if problems else None)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _for_history(message: dict[str, Any], tool_calls: tuple[ToolCall, ...]) -> Message:
    """Return the assistant's message as the next request repeats it.

    Unchanged, except that invalid arguments become ``{}``: providers refuse a request that repeats
    them. The tool's result says what was wrong.
    """
    kept: Message = {"role": "assistant"}
    kept.update({key: message[key] for key in _KEPT_IN_HISTORY if message.get(key) is not None})
    kept.pop("tool_calls", None)
    if not tool_calls:
        kept.setdefault("content", "")
        return kept
    kept.setdefault("content", None)
    written = message["tool_calls"]
    kept["tool_calls"] = [
        _call_for_history(raw, call) for raw, call in zip(written, tool_calls, strict=True)
    ]
    return kept


def _call_for_history(raw: Any, call: ToolCall) -> dict[str, Any]:
    arguments = _object(_object(raw).get("function")).get("arguments")
    is_written = isinstance(arguments, str) and arguments.strip() not in ("", "null")
    is_valid = call.problem is None and is_written
    if is_valid and raw.get("id") == call.id:
        return dict(raw)
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name or "unknown", "arguments": arguments if is_valid else "{}"},
    }


def _usage(usage: Any) -> Usage:
    given = _object(usage)
    details = _object(given.get("prompt_tokens_details"))
    return Usage(
        prompt_tokens=_count(given.get("prompt_tokens")),
        cached_tokens=_count(details.get("cached_tokens")),
        completion_tokens=_count(given.get("completion_tokens")),
        cost_usd=_cost(given.get("cost")),
    )


def _count(value: Any) -> int:
    return value if type(value) is int and 0 <= value <= _MAX_TOKENS else 0


def _cost(value: Any) -> Decimal:
    if not isinstance(value, int | float | str):
        return Decimal(0)
    try:
        cost = Decimal(str(value))
    except InvalidOperation:
        return Decimal(0)
    return cost if cost.is_finite() and 0 <= cost < 10**5 else Decimal(0)
