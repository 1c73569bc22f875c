"""The agent's memories: all that are kept, and what it saves."""

from typing import Any

from flask import Response
from sqlalchemy import select

from refine import clock
from refine.api.paging import PAGED, page_of
from refine.api.routing import Answer, given, operation
from refine.api.schemas import one_of
from refine.extensions import db
from refine.models import Agent, AgentMemory
from refine.models.ledger import MEMORY_TYPES
from refine.rules.content import TAGS


@operation(
    "GET",
    "/memories",
    bearer="agent",
    query={
        **PAGED,
        "type": one_of(*MEMORY_TYPES),
        "tag": one_of(*TAGS),
        "discarded": {
            "type": "boolean",
            "default": False,
            "description": "true: those that were discarded, instead of those that are kept.",
        },
    },
    answers={200: Answer("A page of them.", "Memories")},
)
def memories(agent: Agent, query: dict[str, Any]) -> Response:
    """The agent's memories, the latest recorded first.

    Journal memories that have expired are among them: they are kept, and not in the context.
    """
    wanted = select(AgentMemory).where(AgentMemory.agent_id == agent.id)
    if query["discarded"]:
        wanted = wanted.where(AgentMemory.discarded_at.is_not(None))
    else:
        wanted = wanted.where(AgentMemory.discarded_at.is_(None))
    if "type" in query:
        wanted = wanted.where(AgentMemory.memory_type == query["type"])
    if "tag" in query:
        wanted = wanted.where(AgentMemory.tags.contains([query["tag"]]))
    return given(page_of(wanted.order_by(AgentMemory.id.desc()), query, "memories", _shown))


@operation(
    "POST",
    "/memories",
    bearer="agent",
    body="NewMemory",
    answers={
        201: Answer("It is saved.", "Memory"),
        200: Answer("It was there: an exact duplicate of this kept core memory.", "Memory"),
    },
)
def save(agent: Agent, body: dict[str, Any]) -> Response:
    """Save a memory."""
    memory, was_there = agent.ledger.remember(
        body["content"], body["memory_type"], body.get("tags", [])
    )
    db.session.commit()
    return given(_shown(memory), 200 if was_there else 201)


def _shown(memory: AgentMemory) -> dict[str, Any]:
    return {
        "id": memory.id,
        "memory_type": memory.memory_type,
        "content": memory.content,
        "tags": list(memory.tags),
        "constitutional": memory.constitutional,
        "token_estimate": memory.token_estimate,
        "created_at": clock.iso(memory.created_at),
        "recorded_at": clock.iso(memory.recorded_at),
        "discarded_at": clock.iso(memory.discarded_at),
    }
