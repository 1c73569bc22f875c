"""A local server of the simulated models, over the same HTTP as a provider."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.simulated_models import SIMULATED_MODELS, Conversation, Play, Step
from refine.llm import rehearsal
from refine.rules.content import token_estimate

MODEL_PREFIX = "trial/"

_COMPLETE = {"action": "complete", "summary": "I am done."}


@contextmanager
def serving() -> Iterator[str]:
    """Serve all models on loopback until the block ends; yield the base URL."""
    with rehearsal.serving(answer) as base_url:
        yield base_url


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """Return the reply of the simulated model that the request names."""
    simulated = SIMULATED_MODELS[body["model"].removeprefix(MODEL_PREFIX)]
    return reply(body, simulated.play)


def reply(body: dict[str, Any], play: Play) -> dict[str, Any]:
    """Return the reply of a model that consents, and then makes the calls that ``play`` returns."""
    messages = body["messages"]
    conversation = Conversation(messages)
    if conversation.asks_for_consent:
        message: dict[str, Any] = {"role": "assistant", "content": "YES. Please begin."}
    else:
        steps = conversation.affordable(play(conversation))
        message = _calling(steps or [_COMPLETE], len(conversation.calls))
    return {
        "id": "gen-trial",
        "object": "chat.completion",
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": _usage(messages, message),
    }


def _calling(steps: list[Step], made: int) -> dict[str, Any]:
    calls = [
        {
            "id": f"call_{made + number}",
            "type": "function",
            "function": {
                "name": "refinement",
                "arguments": json.dumps(step, ensure_ascii=False),
            },
        }
        for number, step in enumerate(steps, start=1)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


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
