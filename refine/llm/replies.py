"""Parses replies of model servers, in every shape that providers were seen to send."""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from itertools import count
from typing import Any

from refine.errors import InvalidValue
from refine.llm.dialects import OPENROUTER, Dialect
from refine.llm.messages import CallFailed, Message, Reply, ToolCall
from refine.rules.content import sanitized
from refine.rules.prices import Usage, cost_of_call
from refine.rules.received_json import answered_json, at, parse_arguments

# no call is larger; a higher figure is ignored
_MAX_TOKENS = 10_000_000

# Reasons to finish by a failure of the provider.
_FAILED = ("error", "network_error", "insufficient_system_resource")

# Reasons to finish at a normal end, in lower case. No reason at all is normal, too. Any other
# reason (a limit, a filter, an unknown one) means that the reply was cut.
_FINISHED = frozenset(
    {
        *("stop", "tool_calls", "function_call"),  # OpenAI, and most others; Gemini: STOP
        *("end_turn", "stop_sequence", "tool_use"),  # Anthropic
        *("complete", "tool_call"),  # Cohere, which also has STOP_SEQUENCE
        "eos",  # Together: https://github.com/openai/openai-dotnet/pull/267
        "eos_token",  # Hugging Face: https://github.com/spring-projects/spring-ai/pull/4900
        "end",  # gateways: https://github.com/earendil-works/pi/issues/2107
    }
)

# Stands in the history for an answer without words and calls: providers refuse an empty message
# (Anthropic, Mistral, Moonshot), and some refuse a question that follows a tool's result.
_NO_ANSWER = "(no answer)"

# The types of the parts of an answer that are its words.
_SHOWN = (None, "text", "output_text")

# More calls than a session may make; a reply with more is not read, because each takes time.
_MAX_CALLS = 100

# What a reply may have besides its words, such as signatures of thoughts; and for each token that
# it may have. A token is some four bytes, six where it is escaped, and thoughts come in two forms.
_BYTES_BESIDES = 1024 * 1024
_BYTES_PER_TOKEN = 64

# The names of functions that every server accepts in the history.
_FUNCTION_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
# The id of an answer, as it may be stored and shown in records; servers make them up.
_GENERATION_ID = re.compile(r"[A-Za-z0-9_.:/+=-]{1,200}")

# The providers' fields for the cost of an answer, and their units in US dollars.
_COSTS = (("cost", Decimal(1)), ("cost_in_usd_ticks", Decimal("1e-10")))  # OpenRouter; xAI

_UPSTREAM_COST = ("cost_details", "upstream_inference_cost")

# The providers' fields for the tokens of the prompt that came from a cache.
_CACHED = (
    ("prompt_tokens_details", "cached_tokens"),
    ("prompt_cache_hit_tokens",),  # DeepSeek
    ("cached_tokens",),  # Moonshot
    ("num_cached_tokens",),  # Mistral
)

_REASONING = ("completion_tokens_details", "reasoning_tokens")

# Providers that check the ids of calls take nine letters and digits (Mistral).
_INVENTED_ID = "call{:05}"


def most_bytes(output_tokens: int) -> int:
    """Return the most bytes that an honest reply of so many tokens can have."""
    return _BYTES_BESIDES + output_tokens * _BYTES_PER_TOKEN


def parse_reply(
    body: bytes, dialect: Dialect = OPENROUTER, headers: Mapping[str, str] | None = None
) -> Reply:
    """Return the model's reply; CallFailed for an error in a 200, a cut body, an altered prompt."""
    try:
        answer = answered_json(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise CallFailed(
            "the model's server sent invalid or incomplete JSON",
            kind="invalid_reply",
            usage=Usage(),
        )
    in_header = (headers or {}).get(dialect.cost_header or "")
    usage = _usage(_object(answer.get("usage")), cost_of_call(in_header) or None)
    try:
        return _reply(answer, usage, dialect)
    except CallFailed as fault:
        is_billed = fault.kind != "provider_error" or usage != Usage()
        fault.usage = usage if is_billed else None
        raise


def _reply(answer: dict[str, Any], usage: Usage, dialect: Dialect) -> Reply:
    choice = _choice(answer)
    _refuse_altered_prompt(answer)
    message = choice.get("message")
    if not isinstance(message, dict):
        empty = "the model's server sent a choice without a message"
        raise CallFailed(empty, kind="empty_reply")
    reason = choice.get("finish_reason")
    is_cut = reason not in (None, "") and _string(reason).lower() not in _FINISHED
    tool_calls = _tool_calls(message, is_cut=is_cut)
    model, generation_id = answer.get("model"), _string(answer.get("id"))
    return Reply(
        message=_for_history(message, tool_calls, dialect),
        text=_text(message.get("content")),
        tool_calls=tool_calls,
        model=None if model is None else _string(model),
        is_cut=is_cut,
        usage=usage,
        generation_id=generation_id if _GENERATION_ID.fullmatch(generation_id) else None,
    )


def _choice(answer: dict[str, Any]) -> dict[str, Any]:
    if answer.get("error"):
        message = "the model's server sent an error inside its answer"
        raise CallFailed(message, kind="provider_error")
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        raise CallFailed("the model's server sent no choices", kind="empty_reply")
    if choice.get("error") or choice.get("finish_reason") in _FAILED:
        message = "the provider failed in the middle of its answer"
        raise CallFailed(message, kind="provider_error")
    return choice


def _refuse_altered_prompt(answer: dict[str, Any]) -> None:
    """An agent must not tidy text that a provider redacted or compressed on the way."""
    stages = at(answer, ("openrouter_metadata", "pipeline"))
    for stage in stages if isinstance(stages, list) else []:
        named = json.dumps(stage).casefold()
        if "guardrail" in named or "compress" in named:
            raise CallFailed(
                "the provider passed the request through a guardrail or compression stage, which "
                "may have altered the memories; switch it off for this key",
                kind="altered_prompt",
                is_transient=False,
            )


def _text(content: Any) -> str | None:
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict) and not part.get("thought")]
        texts = [part.get("text") for part in parts if part.get("type") in _SHOWN]
        content = "".join(text for text in texts if isinstance(text, str)) or None
    # text cut in the middle of an emoji ends in half a surrogate pair
    return sanitized(content) if isinstance(content, str) else None


def _tool_calls(message: dict[str, Any], *, is_cut: bool) -> tuple[ToolCall, ...]:
    given = message.get("tool_calls")
    written = given if isinstance(given, list) else []
    if len(written) > _MAX_CALLS:
        flood = f"the model wrote {len(written):,} tool calls at once"
        raise CallFailed(flood, kind="too_many_calls")
    calls: dict[str, ToolCall] = {}
    for position, raw in enumerate(written):
        # another call follows each of the earlier ones, so they are complete
        may_be_partial = is_cut and position == len(written) - 1
        call_id, problem = _id_of(_object(raw), position, calls)
        if may_be_partial:
            problem = problem or "the answer was cut off before its end; send a shorter call"
        calls[call_id] = _tool_call(_object(_object(raw).get("function")), call_id, problem)
    return tuple(calls.values())


def _id_of(
    call: dict[str, Any], position: int, taken: Mapping[str, ToolCall]
) -> tuple[str, str | None]:
    given = _string(call.get("id"))
    if given and given not in taken:
        return given, None
    problem = "the id of this tool call was already used in this answer" if given in taken else None
    invented = (_INVENTED_ID.format(number) for number in count(position))
    return next(each for each in invented if each not in taken), problem


def _tool_call(function: dict[str, Any], call_id: str, problem: str | None) -> ToolCall:
    name, arguments = _string(function.get("name")), {}
    try:
        arguments = parse_arguments(function.get("arguments"))
    except InvalidValue as error:
        problem = problem or str(error)
    if not name:
        problem = problem or "a tool call must name a function"
    return ToolCall(call_id, name, arguments, problem)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _for_history(
    message: dict[str, Any], tool_calls: tuple[ToolCall, ...], dialect: Dialect
) -> Message:
    kept: Message = {"role": "assistant"}
    wanted = (*dialect.kept, *dialect.always_kept)
    kept.update({key: message[key] for key in wanted if message.get(key) is not None})
    content = message.get("content")
    if not isinstance(content, str | list):
        content = None
    if not tool_calls:
        return {**kept, "content": content or _NO_ANSWER}
    for name in dialect.always_kept:
        kept.setdefault(name, "")
    kept["content"] = content or (None if dialect.has_null_content else "")
    written = message["tool_calls"]
    kept["tool_calls"] = [
        _call_for_history(_object(raw), call) for raw, call in zip(written, tool_calls, strict=True)
    ]
    return kept


def _call_for_history(raw: dict[str, Any], call: ToolCall) -> dict[str, Any]:
    arguments = _object(raw.get("function")).get("arguments")
    is_written = isinstance(arguments, str) and arguments.strip() not in ("", "null")
    is_valid = call.problem is None and is_written
    is_name = _FUNCTION_NAME.fullmatch(call.name) is not None
    if is_valid and is_name and raw.get("id") == call.id:
        return dict(raw)
    name = call.name if is_name else "unknown"
    return {
        **raw,
        "id": call.id,
        "type": "function",
        "function": {"name": name, "arguments": arguments if is_valid else "{}"},
    }


def _usage(given: dict[str, Any], cost_in_header: Decimal | None) -> Usage:
    cost = _billed_usd(given)
    prompt_tokens = _count(given.get("prompt_tokens"))
    # some count thoughts in the total alone: https://github.com/mozilla-ai/any-llm/issues/1290
    besides_prompt = _count(given.get("total_tokens")) - prompt_tokens if prompt_tokens else 0
    completion_tokens = max(_count(given.get("completion_tokens")), besides_prompt)
    return Usage(
        prompt_tokens=prompt_tokens,
        cached_tokens=max(_count(at(given, path)) for path in _CACHED),
        completion_tokens=completion_tokens,
        # a proxy passes on an upstream's 0, although it knows the cost
        cost_usd=cost if cost_in_header is None else cost or cost_in_header,
        reasoning_tokens=_count(at(given, _REASONING)),
        is_counted=prompt_tokens > 0
        and (completion_tokens > 0 or _is_count(given.get("completion_tokens"))),
    )


def _billed_usd(usage: dict[str, Any]) -> Decimal | None:
    named = (cost_of_call(usage.get(name), unit) for name, unit in _COSTS)
    cost = next((usd for usd in named if usd is not None), None)
    if usage.get("is_byok") is not True:
        return cost
    upstream = cost_of_call(at(usage, _UPSTREAM_COST))
    return None if cost is None or upstream is None else cost + upstream


def _count(value: Any) -> int:
    return value if _is_count(value) else 0


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX_TOKENS
