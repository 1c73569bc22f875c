"""Sessions over memories of given sizes, and what became of those."""

from typing import Any

from sqlalchemy import select

from refine.extensions import db
from refine.models import Agent, AgentMemory, RefinementSession
from tests import factories


def begin(*tokens: int, **fields: Any) -> tuple[RefinementSession, list[int]]:
    """A session over memories of these sizes; and their ids."""
    agent = factories.agent(**fields)
    ids = [memory.id for memory in factories.ledger(agent, *tokens)]
    return factories.session(agent), ids


def memory(memory_id: int) -> AgentMemory:
    return db.session.get_one(AgentMemory, memory_id, populate_existing=True)


def state_of(agent: Agent) -> dict[int, Any]:
    """Every core memory as it stands, discarded ones too."""
    db.session.flush()
    db.session.expire_all()
    memories = select(AgentMemory).where(
        AgentMemory.agent_id == agent.id, AgentMemory.memory_type == "core"
    )
    return {each.id: each.image() for each in db.session.scalars(memories.order_by(AgentMemory.id))}


def kept(agent: Agent) -> dict[int, Any]:
    return {id_: image for id_, image in state_of(agent).items() if image["discarded_at"] is None}
