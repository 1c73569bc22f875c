"""What a platform manages: its account's agents, their tokens, and what they cost; no content."""

from typing import Annotated

from pydantic import Field
from sqlalchemy import select

from refine import clock, settings
from refine.api.routing import operation
from refine.api.rows import (
    Page,
    PageQuery,
    account_row_or_404,
    found_page,
    page_of,
    rows_of_account,
)
from refine.api.schemas import Body, Instant, Omittable, QueryDay, Resource, Spending, Time
from refine.errors import InvalidValue
from refine.extensions import db
from refine.llm.provider import require_one_model
from refine.models import Agent, ApiToken
from refine.models.agent import MAX_CORE_TOKEN_BUDGET
from refine.models.runs.spending import used_by
from refine.rules.content import MAX_AGENT_NAME_CHARACTERS, MAX_PROMPT_CHARACTERS
from refine.rules.retention import (
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


class AgentPage(Page):
    """A page of agents."""

    agents: list[AgentSummary]


@operation("GET", "/agents", bearer="platform")
def list_agents(token: ApiToken, query: PageQuery) -> AgentPage:
    """List the account's agents, newest first."""
    rows = rows_of_account(token, Agent).order_by(Agent.id.desc())
    return page_of(AgentPage, rows, query, _summary)


@operation("POST", "/agents", bearer="platform", status=201)
def add_agent(token: ApiToken, body: NewAgent) -> AgentSummary:
    """Add an agent to the account."""
    require_one_model(body.model_id, settings.current())
    return _summary(token.add_agent(**body.model_dump(exclude_unset=True)))


@operation("GET", "/agents/<int:agent_id>", bearer="platform")
def get_agent(token: ApiToken, agent_id: int) -> AgentSummary:
    """Return one agent of the account."""
    return _summary(account_row_or_404(token, Agent, agent_id, "agent"))


@operation("PATCH", "/agents/<int:agent_id>", bearer="platform")
def change_agent(token: ApiToken, agent_id: int, body: AgentChanges) -> AgentSummary:
    """Change an agent. Each change is recorded, and the agent is told in its journal.

    For 24 hours after a change of its name, model or a prompt, nobody may ask the agent for
    access. A prompt that somebody else wrote last, such as the agent, counts as changed even by
    the same words.
    """
    agent = account_row_or_404(token, Agent, agent_id, "agent")
    fields = body.model_dump(exclude_unset=True)
    if "model_id" in token.change_agent(agent, **fields):
        require_one_model(agent.model_id, settings.current())
    return _summary(agent)


def _summary(agent: Agent) -> AgentSummary:
    memories, tokens = agent.ledger.core_totals()
    return AgentSummary.of(agent, core_memories=memories, core_tokens=tokens)


class NewToken(Body):
    """A token to create."""

    expires_at: Annotated[Instant | None, Omittable]
    """When it expires; null for never."""


class CreatedToken(Resource):
    """A new token, shown only once."""

    id: int
    agent_id: int
    token: str | None
    """The token itself; null if the answer is repeated."""
    hint: str
    """Its first characters, as shown in lists."""
    created_at: Time
    expires_at: Time | None


@operation(
    "POST",
    "/agents/<int:agent_id>/tokens",
    bearer="platform",
    shown_once="token",
    status=201,
)
def create_token(token: ApiToken, agent_id: int, body: NewToken) -> CreatedToken:
    """Create a token that acts as the agent, and note it in the agent's journal."""
    agent = account_row_or_404(token, Agent, agent_id, "agent")
    if body.expires_at is not None and body.expires_at <= clock.now():
        raise InvalidValue("expires_at must be in the future")
    minted, secret = token.mint_for(agent, expires_at=body.expires_at)
    return CreatedToken.of(minted, token=secret)


@operation("DELETE", "/tokens/<int:token_id>", bearer="platform", status=204)
def revoke_token(token: ApiToken, token_id: int) -> None:
    """Revoke a token of the account, immediately and permanently."""
    account_row_or_404(token, ApiToken, token_id, "token").revoke(by=token)


class UsageQuery(PageQuery):
    """Which agents, and which days, in the account's time zone."""

    since: Annotated[QueryDay, Field(alias="from"), Omittable]
    """The first day, inclusive."""
    until: Annotated[QueryDay, Field(alias="to"), Omittable]
    """The last day, exclusive."""


class UsageOfMonth(Spending):
    """One agent's usage in one month; tokens and cost include all kinds of runs."""

    month: Annotated[str, Field(examples=["2026-11"])]
    agent_id: int
    agent: str
    sessions: int
    """Refinement sessions requested in that month, regardless of outcome."""
    reflections: int
    conversations: int
    """Conversations handed over in that month."""
    saved_tokens: int
    """By how much sessions that were not undone made every prompt smaller."""


class UsagePage(Page):
    """Usage of as many agents as `limit` says, by month, then by agent."""

    time_zone: str
    """The account's time zone, in which months are counted."""
    usage: list[UsageOfMonth]


@operation("GET", "/usage", bearer="platform")
def get_usage(token: ApiToken, query: UsageQuery) -> UsagePage:
    """Return sessions, reflections and conversations with their cost, by agent and month."""
    account = token.account
    newest_first = select(Agent.id).where(Agent.account_id == account.id).order_by(Agent.id.desc())
    agents = found_page(newest_first, query)
    used = used_by("agent and month", query.since, query.until, account.id)
    theirs = used.where(Agent.id.in_([row.id for row in agents.rows]))
    months = db.session.execute(theirs.order_by("month", Agent.id))
    usage = [UsageOfMonth.of(each, month=f"{each.month:%Y-%m}") for each in months]
    return UsagePage(time_zone=account.time_zone, usage=usage, next_cursor=agents.after)
