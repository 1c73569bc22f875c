"""What a token may see: the rows of its agent, or of its account; any other row is not found."""

import uuid
from typing import Any, TypeVar

from sqlalchemy import Select, select

from refine import refusals
from refine.api.problems import Problem
from refine.extensions import db
from refine.models import (
    AccessGrant,
    Agent,
    AgentMemory,
    ApiToken,
    AuditLog,
    MemoryTask,
    RefinementSession,
)

OfAgent = TypeVar("OfAgent", AccessGrant, AgentMemory, AuditLog, MemoryTask, RefinementSession)
OfAccount = TypeVar("OfAccount", Agent, ApiToken)


def rows_of_agent(agent: Agent, model: type[OfAgent]) -> Select[OfAgent]:
    """Return a query for the agent's own rows."""
    return select(model).where(model.agent_id == agent.id)


def agent_row_or_404(agent: Agent, model: type[OfAgent], id_: uuid.UUID, noun: str) -> OfAgent:
    """Return the agent's own row with that id; Problem if it has no such ``noun``."""
    found = db.session.scalar(rows_of_agent(agent, model).where(model.id == id_))
    if found is None or (found.id, found.agent_id) != (id_, agent.id):
        _note_if_foreign(model, id_)
        raise Problem(404, f"You have no such {noun}.")
    return found


def rows_of_account(token: ApiToken, model: type[OfAccount]) -> Select[OfAccount]:
    """Return a query for the rows of the token's account."""
    return select(model).where(model.account_id == token.account_id)


def account_row_or_404(token: ApiToken, model: type[OfAccount], id_: int, noun: str) -> OfAccount:
    """Return the row with that id of the token's account; Problem if it has no such ``noun``.

    RowAltered if it may have been another account's before somebody changed it.
    """
    found = db.session.get(model, id_, populate_existing=True)
    if found is None or (found.id, found.account_id) != (id_, token.account_id):
        refusals.note_other_tenant(found)
        raise Problem(404, f"The account has no such {noun}.")
    found.require_genuine()
    return found


def _note_if_foreign(model: type[Any], id_: uuid.UUID | int) -> None:
    refusals.note_other_tenant(db.session.scalar(select(model.id).where(model.id == id_)))
