"""Verification of one agent's chain alone."""

from sqlalchemy import select

from refine.extensions import db
from refine.models import Agent, ChainHead
from refine.models.audit.verification import ChainResult
from refine.models.integrity import verify_chains


def verify_agent(agent: Agent) -> ChainResult:
    """Verify the agent's chain, memories and rows."""
    head = select(ChainHead.id).where(ChainHead.agent_id == agent.id)
    return verify_chains([db.session.scalars(head).one()])[0]
