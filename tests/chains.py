"""Verification as tests ask for it."""

from sqlalchemy import select

from refine.extensions import db
from refine.models import Agent, ChainHead
from refine.models.audit.verification import ChainResult
from refine.models.integrity import verify_all, verify_chains


def verify_agent(agent: Agent) -> ChainResult:
    """Verify the agent's chain, memories and rows."""
    head = select(ChainHead.id).where(ChainHead.agent_id == agent.id)
    return verify_chains([db.session.scalars(head).one()])[0]


def problems(*statements: str) -> list[str]:
    """Problems found by verification after these statements of a superuser, then rolled back."""
    db.session.rollback()
    if statements:
        connection = db.session.connection()
        for statement in ("SET LOCAL session_replication_role = replica", *statements):
            connection.exec_driver_sql(statement)
    db.session.expire_all()
    found = [f"{each.name}: {each.problem}" for each in verify_all() if each.problem is not None]
    db.session.rollback()
    return found
