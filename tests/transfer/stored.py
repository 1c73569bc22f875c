"""What an agent keeps after an import."""

from refine.extensions import db
from refine.models import Agent, AgentMemory
from refine.transfer.exporting import full_lines


def all_of(owner: Agent) -> list[AgentMemory]:
    """Every memory of the agent, discarded ones included, as the database has it."""
    db.session.rollback()
    mine = db.select(AgentMemory).where(AgentMemory.agent_id == owner.id)
    return list(db.session.scalars(mine.order_by(AgentMemory.id)))


def contents(owner: Agent) -> list[str]:
    return [memory.content for memory in all_of(owner)]


def exported(owner: Agent) -> str:
    """A full export of the agent."""
    opened = (
        (memory, {"content": memory.content, "extra": memory.extra}) for memory in all_of(owner)
    )
    return "\n".join(full_lines(owner, opened))
