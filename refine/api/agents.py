"""Agents, as the platform that hosts them manages them: figures and settings, and no content."""

from typing import Any

from flask import Response
from sqlalchemy import select

from refine import clock
from refine.api.paging import PAGED, page_of
from refine.api.problems import Problem
from refine.api.routing import Answer, given, operation
from refine.extensions import db
from refine.models import Agent, ApiToken

_LARGEST_ID = 2**63 - 1


@operation(
    "GET",
    "/agents",
    bearer="platform",
    query=PAGED,
    answers={200: Answer("A page of them.", "Agents")},
)
def agents(token: ApiToken, query: dict[str, Any]) -> Response:
    """The account's agents, newest first."""
    wanted = select(Agent).where(Agent.account_id == token.account_id).order_by(Agent.id.desc())
    return given(page_of(wanted, query, "agents", _shown))


@operation(
    "POST",
    "/agents",
    bearer="platform",
    body="NewAgent",
    answers={201: Answer("It is there.", "Agent")},
)
def add(token: ApiToken, body: dict[str, Any]) -> Response:
    """Add an agent to the account."""
    made = token.add_agent(**body)
    db.session.commit()
    return given(_shown(made), 201)


@operation(
    "PATCH",
    "/agents/<int:agent_id>",
    bearer="platform",
    body="AgentChanges",
    answers={
        200: Answer("The agent as it is now.", "Agent"),
        404: Answer("The account has no such agent."),
    },
)
def change(token: ApiToken, agent_id: int, body: dict[str, Any]) -> Response:
    """Change an agent. Each change is a record, and the agent is told in its journal.

    For a day after its model or a prompt was changed nobody is let in to read on its word.
    """
    agent = agent_or_404(token, agent_id)
    token.change_agent(agent, **body)
    db.session.commit()
    return given(_shown(agent))


def agent_or_404(token: ApiToken, agent_id: int) -> Agent:
    """Return the agent of that id, if it belongs to the token's account."""
    agent = db.session.get(Agent, agent_id) if agent_id <= _LARGEST_ID else None
    if agent is None or agent.account_id != token.account_id:
        raise Problem(404, "The account has no such agent.")
    return agent


def _shown(agent: Agent) -> dict[str, Any]:
    memories, tokens = agent.ledger.figures()
    return {
        "id": agent.id,
        "name": agent.name,
        "model_id": agent.model_id,
        "refinement_threshold": agent.refinement_threshold,
        "core_token_budget": agent.core_token_budget,
        "core_memories": memories,
        "core_tokens": tokens,
        "active": agent.active,
        "paused": agent.paused,
        "last_refinement_at": clock.iso(agent.last_refinement_at),
        "created_at": clock.iso(agent.created_at),
    }
