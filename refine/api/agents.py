"""Agents, managed by their platform: figures and settings, but no content."""

from typing import Annotated

from flask import Response
from pydantic import Field

from refine import settings
from refine.api.paging import Page, PageQuery, page_response
from refine.api.routing import ResponseSpec, json_response, operation
from refine.api.schemas import Body, Omittable, Resource, Time
from refine.api.scope import account_row_or_404, rows_of_account
from refine.extensions import db
from refine.faults import as_sentence
from refine.llm.clients import require_one_model, warning_about
from refine.models import Agent, ApiToken
from refine.models.agent import MAX_CORE_TOKEN_BUDGET
from refine.rules.content import MAX_AGENT_NAME_CHARACTERS, MAX_PROMPT_CHARACTERS
from refine.rules.threshold import (
    DEFAULT_THRESHOLD,
    MAX_THRESHOLD,
    THRESHOLD_ABOVE,
    THRESHOLD_DECIMALS,
)

_NAME = f"At most {MAX_AGENT_NAME_CHARACTERS} characters."
Name = Annotated[str, Field(min_length=1, description=_NAME, examples=["Wren"])]
ModelId = Annotated[str, Field(min_length=1, examples=["rehearsal/wren"])]
_PROMPT = f"At most {MAX_PROMPT_CHARACTERS:,} characters; null for the default. Write-only."
Prompt = Annotated[str | None, Field(description=_PROMPT)]


class AgentChanges(Body):
    """The settings to change; the others stay as they are."""

    name: Annotated[Name, Omittable]
    model_id: Annotated[ModelId, Omittable]
    system_prompt: Annotated[Prompt, Omittable]
    reflection_prompt: Annotated[
        Prompt,
        Omittable,
        Field(description=f"What to keep of a conversation. {_PROMPT}"),
    ]
    memory_reflection_prompt: Annotated[
        Prompt,
        Omittable,
        Field(
            description=f"How to look back over the journal. {_PROMPT} Does not turn on daily "
            "reflection, which only the agent can turn on; null turns it off."
        ),
    ]
    refinement_prompt: Annotated[Prompt, Omittable]
    refinement_threshold: Annotated[
        float | None,
        Omittable,
        Field(
            gt=THRESHOLD_ABOVE,
            le=MAX_THRESHOLD,
            description="The share of its ledger that a session must leave; at most "
            f"{THRESHOLD_DECIMALS} decimals; null for {DEFAULT_THRESHOLD}.",
        ),
    ]
    core_token_budget: Annotated[int, Field(ge=1, le=MAX_CORE_TOKEN_BUDGET), Omittable]
    """How many tokens of core memory the agent should stay under."""
    active: Annotated[bool, Omittable]
    paused: Annotated[bool, Omittable]


class NewAgent(AgentChanges):
    """An agent to add."""

    name: Name
    model_id: ModelId


class AgentSummary(Resource):
    """An agent's settings and figures, without its prompts."""

    id: int
    name: str
    model_id: str
    refinement_threshold: float | None
    core_token_budget: int
    core_memories: int
    core_tokens: int
    active: bool
    paused: bool
    last_refinement_at: Time | None
    created_at: Time


class SavedAgent(AgentSummary):
    """An agent that was just added or changed."""

    warnings: list[str]
    """Why sessions with its new model may fail, as far as the provider's list of models tells.
    Empty if there is nothing to say."""


class Agents(Page):
    """A page of agents."""

    agents: list[AgentSummary]


@operation(
    "GET", "/agents", bearer="platform", responses={200: ResponseSpec("A page of agents.", Agents)}
)
def agents(token: ApiToken, query: PageQuery) -> Response:
    """List the account's agents, newest first."""
    rows = rows_of_account(token, Agent).order_by(Agent.id.desc())
    return page_response(Agents, rows, query, _summary)


@operation(
    "POST",
    "/agents",
    bearer="platform",
    responses={201: ResponseSpec("Agent created.", SavedAgent)},
)
def add(token: ApiToken, body: NewAgent) -> Response:
    """Add an agent to the account."""
    agent = token.add_agent(**body.model_dump(exclude_unset=True))
    return _saved(agent, is_new_model=True, status=201)


@operation(
    "GET",
    "/agents/<int:agent_id>",
    bearer="platform",
    responses={
        200: ResponseSpec("The agent.", AgentSummary),
        404: ResponseSpec("The account has no such agent."),
    },
)
def agent(token: ApiToken, agent_id: int) -> Response:
    """Return one agent of the account."""
    return json_response(_summary(account_row_or_404(token, Agent, agent_id, "agent")))


@operation(
    "PATCH",
    "/agents/<int:agent_id>",
    bearer="platform",
    responses={
        200: ResponseSpec("The changed agent.", SavedAgent),
        404: ResponseSpec("The account has no such agent."),
        409: ResponseSpec("The agent's content was permanently erased."),
    },
)
def change(token: ApiToken, agent_id: int, body: AgentChanges) -> Response:
    """Change an agent. Each change is recorded, and the agent is told in its journal.

    For 24 hours after a change of its name, model or a prompt, nobody may ask the agent for
    access. A prompt that somebody else wrote last, such as the agent, counts as changed even by
    the same words.
    """
    agent = account_row_or_404(token, Agent, agent_id, "agent")
    changed = token.change_agent(agent, **body.model_dump(exclude_unset=True))
    return _saved(agent, is_new_model="model_id" in changed)


def _saved(agent: Agent, *, is_new_model: bool, status: int = 200) -> Response:
    """Commit and answer; the provider is asked about a new model, with no transaction open."""
    if is_new_model:
        require_one_model(agent.model_id, settings.current())
    saved, is_demo = SavedAgent.of(agent, **_totals(agent), warnings=[]), agent.account.is_demo
    db.session.commit()
    if is_new_model:
        warning = warning_about(saved.model_id, settings.current(), is_demo=is_demo)
        saved.warnings = [as_sentence(warning)] if warning is not None else []
    return json_response(saved, status)


def _summary(agent: Agent) -> AgentSummary:
    return AgentSummary.of(agent, **_totals(agent))


def _totals(agent: Agent) -> dict[str, int]:
    memories, tokens = agent.ledger.core_totals()
    return {"core_memories": memories, "core_tokens": tokens}
