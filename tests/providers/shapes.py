"""How each provider writes its answers: fields of a reply, usage."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.providers.checks import Message

ABSENT = object()
TICKS = 10**10
CACHED_TOKENS = 64


@dataclass(frozen=True)
class Step:
    """What a model says in one reply: words, calls of the tool, or both.

    A call is given by its arguments: a dict, or a string that is sent as it is. ``is_cut``: the
    reply ends at the output limit.
    """

    words: str | None = None
    calls: tuple[dict[str, Any] | str, ...] = ()
    is_cut: bool = False


def says(words: str) -> Step:
    return Step(words)


def calls(*arguments: dict[str, Any] | str, words: str | None = None) -> Step:
    return Step(words, arguments)


# -- usage -----------------------------------------------------------------------------------------


def plain_usage(prompt: int, completion: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def openai_usage(prompt: int, completion: int) -> dict[str, Any]:
    return {
        **plain_usage(prompt, completion),
        "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def openrouter_usage(prompt: int, completion: int) -> dict[str, Any]:
    costs = {"cost": 0.0005, "cost_details": {"upstream_inference_cost": None}, "is_byok": False}
    return {**openai_usage(prompt, completion), **costs}


def anthropic_usage(prompt: int, completion: int) -> dict[str, Any]:
    empty = {"prompt_tokens_details": None, "completion_tokens_details": None}
    return {**plain_usage(prompt, completion), **empty}


def deepseek_usage(prompt: int, completion: int) -> dict[str, Any]:
    return {
        **plain_usage(prompt, completion),
        "prompt_cache_hit_tokens": CACHED_TOKENS,
        "prompt_cache_miss_tokens": prompt - CACHED_TOKENS,
    }


def moonshot_usage(prompt: int, completion: int) -> dict[str, Any]:
    return {**plain_usage(prompt, completion), "cached_tokens": CACHED_TOKENS}


def xai_usage(prompt: int, completion: int) -> dict[str, Any]:
    ticks = {"num_sources_used": 0, "cost_in_usd_ticks": 5 * TICKS // 10_000}
    return {**openai_usage(prompt, completion), **ticks}


def groq_usage(prompt: int, completion: int) -> dict[str, Any]:
    return {**plain_usage(prompt, completion), "queue_time": 0.01, "total_time": 0.5}


# -- answers ---------------------------------------------------------------------------------------

# What a model thought, in the fields of the provider; given the number of the answer.
Thoughts = Callable[[int], dict[str, Any]]


def no_thoughts(_number: int) -> dict[str, Any]:
    return {}


def reasoning_content(number: int) -> dict[str, Any]:
    """The second answer has none: the field is there, and empty."""
    return {"reasoning_content": "" if number == 2 else f"canary of thought {number}"}


def reasoning(number: int) -> dict[str, Any]:
    return {"reasoning": f"canary of thought {number}"}


def reasoning_details(number: int) -> dict[str, Any]:
    details = [
        {"type": "reasoning.text", "text": f"canary {number}", "signature": f"signed-{number}"},
        {"type": "reasoning.encrypted", "data": f"sealed-{number}", "id": f"thought-{number}"},
    ]
    return {"reasoning": f"canary {number}", "reasoning_details": details}


def thinking_blocks(number: int) -> dict[str, Any]:
    block = {"type": "thinking", "thinking": f"canary {number}", "signature": f"signed-{number}"}
    return {"reasoning_content": f"canary {number}", "thinking_blocks": [block]}


def text_content(words: str | None, _number: int) -> Any:
    return words


def thinking_chunks(words: str | None, number: int) -> Any:
    """Mistral's reasoning models think within the content; here, in every second answer."""
    if not words or number % 2:
        return words
    thought = [{"type": "text", "text": f"canary {number}"}]
    thinking = {"type": "thinking", "thinking": thought, "closed": True}
    return [thinking, {"type": "text", "text": words}]


@dataclass(frozen=True)
class Shape:
    """How one provider writes an answer.

    no_content    what stands for the content beside tool calls
    content       how words are written
    thoughts      fields of the message that tell what the model thought
    call_id       ids of calls, from a number
    on_call       further fields of a call, from its place in the reply and the reply's number
    extra         further fields of the answer
    headers       headers of every answer
    """

    no_content: Any = None
    content: Callable[[str | None, int], Any] = text_content
    thoughts: Thoughts = no_thoughts
    call_id: Callable[[int], str] = "call_{:08}".format
    on_call: Callable[[int, int], dict[str, Any]] = lambda _place, _number: {}
    usage: Callable[[int, int], dict[str, Any]] = openai_usage
    extra: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def message(self, step: Step, number: int, tool: str) -> Message:
        """Return the assistant's message for a step; ``number`` counts answers from 1."""
        message: Message = {"role": "assistant", **self.thoughts(number)}
        content = self.content(step.words, number)
        if content is None and step.calls:
            content = self.no_content
        if content is not ABSENT:
            message["content"] = content
        if step.calls:
            message["tool_calls"] = [
                self._call(given, tool, place, number) for place, given in enumerate(step.calls)
            ]
        return message

    def answer(self, message: Message, number: int, model: str, *, is_cut: bool) -> dict[str, Any]:
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        reason = "length" if is_cut else reason
        return {
            "id": f"gen-{number}",
            "object": "chat.completion",
            "created": 1_780_000_000 + number,
            "model": model,
            "choices": [{"index": 0, "finish_reason": reason, "message": message}],
            "usage": self.usage(1_000 + number, 20),
            **self.extra,
        }

    def _call(
        self, given: dict[str, Any] | str, tool: str, place: int, number: int
    ) -> dict[str, Any]:
        arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        return {
            "id": self.call_id(10 * number + place),
            "type": "function",
            "function": {"name": tool, "arguments": arguments},
            **self.on_call(place, number),
        }


def index_of_call(place: int, _number: int) -> dict[str, Any]:
    return {"index": place}


def thought_signature(place: int, number: int) -> dict[str, Any]:
    """Gemini signs the first of several calls."""
    signed = {"google": {"thought_signature": f"signed-{number}"}}
    return {"extra_content": signed} if place == 0 else {}


# -- lists of models -------------------------------------------------------------------------------


def listed(*entries: Mapping[str, Any]) -> dict[str, Any]:
    return {"object": "list", "data": [dict(entry) for entry in entries]}
