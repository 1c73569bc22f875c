"""Finished conversations, handed over for the agent to keep what it wants of them."""

from typing import Any

from flask import Response

from refine import clock
from refine.api.routing import Answer, given, operation
from refine.jobs.runs import extract_later
from refine.models import Agent
from refine.rules.conversation import MAX_CONVERSATION_CHARACTERS

# Four bytes a character at worst, and as much again for the JSON around them.
_MOST_BYTES = 8 * MAX_CONVERSATION_CHARACTERS


@operation(
    "POST",
    "/conversations",
    bearer="agent",
    body="NewConversation",
    most_bytes=_MOST_BYTES,
    answers={
        202: Answer("It waits, sealed, and is gone when the agent has read it.", "Extraction"),
        409: Answer("Nothing may be extracted for this agent."),
    },
)
def hand_over(agent: Agent, body: dict[str, Any]) -> Response:
    """Hand over a finished conversation: the agent's model keeps what it wants in its journal."""
    task = extract_later(agent, body["messages"])
    return given(
        {"id": str(task.id), "status": task.status, "created_at": clock.iso(task.created_at)}, 202
    )
