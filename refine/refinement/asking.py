"""What every run shares that asks an agent's model and carries out what it calls."""

import time
import uuid
from collections.abc import Callable
from typing import Any

from refine.llm.messages import ToolCall
from refine.llm.openrouter import Privacy
from refine.models import Agent

Execute = Callable[..., dict[str, Any]]


def result_of(execute: Execute, definition: dict[str, Any], call: ToolCall) -> dict[str, Any]:
    """Carry out one call of the one tool that was offered; an error result for any other."""
    name = definition["function"]["name"]
    if call.problem is not None:
        return {"type": "error", "error": f"{call.problem}; nothing was done"}
    if call.name != name:
        return {"type": "error", "error": f"unknown tool; the only tool is {name}"}
    # whatever a model names is an argument of the tool, or none: never one of Python's own
    known = definition["function"]["parameters"]["properties"]
    if not call.arguments.keys() <= known.keys():
        return {"type": "error", "error": f"unknown parameter; the tool takes: {', '.join(known)}"}
    return execute(**call.arguments)


def privacy_of(agent: Agent, run_id: uuid.UUID) -> Privacy:
    """Return what goes along with the requests of a run besides its messages."""
    return Privacy(
        session_id=str(run_id),
        account_ref=f"account-{agent.account_id}",
        zero_data_retention=agent.account.zero_data_retention,
    )


def once_a_second(
    is_stopping: Callable[[], bool], is_over: Callable[[], bool]
) -> Callable[[], bool]:
    """Return a look, cheap enough for several a second, at whether anybody wants the answer.

    ``is_over`` asks the database, and is called once a second.
    """
    next_look = time.monotonic() + 1.0

    def is_cancelled() -> bool:
        nonlocal next_look
        if is_stopping():
            return True
        if time.monotonic() < next_look:
            return False
        next_look = time.monotonic() + 1.0
        return is_over()

    return is_cancelled
