"""A local server of the simulated models, over the same HTTP as a provider."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench.simulated_models import SIMULATED_MODELS, Conversation, Play, Step
from bench.simulated_models.readers import SECOND_READING, Read, finds_nothing, read_all
from refine.llm import rehearsal
from refine.rules.content import token_estimate

MODEL_PREFIX = "trial/"

_COMPLETE = {"action": "complete", "summary": "I am done."}


@contextmanager
def serving(read: Read = finds_nothing) -> Iterator[str]:
    """Serve all models on loopback until the block ends; yield the base URL. ``read`` gives the
    second readings of all of them.
    """
    with rehearsal.serving(partial(answer, read=read)) as base_url:
        yield base_url


def answer(body: dict[str, Any], read: Read = finds_nothing) -> dict[str, Any]:
    """Return the reply of the simulated model that the request names."""
    return reply(body, SIMULATED_MODELS[body["model"].removeprefix(MODEL_PREFIX)].play, read)


def reply(body: dict[str, Any], play: Play, read: Read = finds_nothing) -> dict[str, Any]:
    """Return the reply of a model that consents, and then makes the calls that ``play`` returns;
    ``read`` gives its second readings.
    """
    conversation = Conversation(body["messages"])
    offered = {tool["function"]["name"] for tool in body.get("tools", ())}
    if SECOND_READING in offered:
        message = _called(SECOND_READING, [read_all(body["messages"], read)])
    elif conversation.asks_for_consent:
        message = {"role": "assistant", "content": "YES. Please begin."}
    else:
        steps = conversation.affordable(play(conversation))
        message = _called("refinement", steps or [_COMPLETE], len(conversation.calls))
    return _reply(body, message)


def _reply(body: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "gen-trial",
        "object": "chat.completion",
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": _usage(body["messages"], message),
    }


def _called(tool: str, calls: list[Step], made: int = 0) -> dict[str, Any]:
    functions = [
        {"name": tool, "arguments": json.dumps(call, ensure_ascii=False)} for call in calls
    ]
    numbered = enumerate(functions, start=made + 1)
    called = [{"id": f"call_{n}", "type": "function", "function": each} for n, each in numbered]
    return {"role": "assistant", "content": None, "tool_calls": called}


def _usage(messages: list[dict[str, Any]], reply: dict[str, Any]) -> dict[str, Any]:
    prompt_tokens, completion_tokens = (
        token_estimate(json.dumps(each, ensure_ascii=False)) for each in (messages, reply)
    )
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "cost": 0,
    }
