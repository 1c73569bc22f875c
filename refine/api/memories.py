"""The agent's memories: listing and saving, and what it sees of them in conversation."""

from hashlib import sha256
from typing import Annotated

from flask import Response, request
from pydantic import Field

from refine.api.routing import JSON, json_response, operation
from refine.api.rows import Page, PageQuery, page_of, rows_of_agent
from refine.api.schemas import Body, QueryBoolean, Resource, Time
from refine.models import Agent, AgentMemory
from refine.models.ledger.memory import MemoryType
from refine.rules.content import MAX_CONTENT_CHARACTERS, Tag

MARKDOWN = "text/markdown"


class MemoryQuery(PageQuery):
    """Which memories."""

    type: MemoryType | None = None
    tag: Tag | None = None
    discarded: QueryBoolean = False
    """true lists discarded memories instead of kept ones."""


class NewMemory(Body):
    """A memory to save."""

    content: Annotated[
        str,
        Field(
            min_length=1,
            description=f"1 to {MAX_CONTENT_CHARACTERS:,} characters after trimming.",
            examples=["The words of the memory."],
        ),
    ]
    memory_type: MemoryType
    """core: permanent; journal: shown for one week."""
    tags: Annotated[list[Tag], Field(default_factory=list, examples=[[]])]


class Memory(Resource):
    """A memory."""

    id: int
    memory_type: MemoryType
    content: str
    tags: list[Tag]
    constitutional: bool
    token_estimate: int
    created_at: Time
    """The original date; merging may set it back."""
    spans_until: Time | None
    """Of a merge: the latest original date, if that is another day."""
    recorded_at: Time
    discarded_at: Time | None


class Memories(Page):
    """A page of memories."""

    memories: list[Memory]


class Context(Resource):
    """The memory context, with its size."""

    context: str | None
    """Markdown for the agent's prompts; null if there are no memories."""
    core_tokens: int
    budget: int


@operation("GET", "/memories", bearer="agent")
def memories(agent: Agent, query: MemoryQuery) -> Memories:
    """List the agent's memories, most recently recorded first.

    Expired journal memories are included, although they are not part of the context.
    """
    rows = rows_of_agent(agent, AgentMemory).where(
        AgentMemory.discarded if query.discarded else ~AgentMemory.discarded
    )
    if query.type is not None:
        rows = rows.where(AgentMemory.memory_type == query.type)
    if query.tag is not None:
        rows = rows.where(AgentMemory.tags.contains([query.tag]))
    return page_of(Memories, rows.order_by(AgentMemory.id.desc()), query, Memory.of)


_EXISTING = "The existing core memory that the new one duplicates exactly."


@operation("POST", "/memories", bearer="agent", returns=Memory, status=201, other=(200, _EXISTING))
def save(agent: Agent, body: NewMemory) -> tuple[Memory, int]:
    """Save a memory."""
    memory, already_present = agent.ledger.remember(body.content, body.memory_type, body.tags)
    return Memory.of(memory), 200 if already_present else 201


@operation("GET", "/context", bearer="agent", returns=Context, media_type=MARKDOWN)
def context(agent: Agent) -> Response:
    """Return the memory context for the next prompt.

    It contains the core memories and the journal of the last week, as Markdown; with `Accept:
    text/markdown`, without JSON around it. Send the ETag as `If-None-Match` to get 304 if nothing
    has changed.
    """
    media_type = request.accept_mimetypes.best_match([JSON, MARKDOWN], default=JSON)
    markdown = agent.memory_context()
    if media_type == MARKDOWN:
        answer = Response(markdown or "", mimetype=MARKDOWN)
    else:
        tokens, budget = agent.core_token_usage, agent.core_token_budget
        answer = json_response(Context(context=markdown, core_tokens=tokens, budget=budget))
    answer.set_etag(sha256(media_type.encode() + b"\n" + answer.get_data()).hexdigest())
    answer.headers["Cache-Control"] = "private, no-cache"
    answer.vary.update(("Accept", "Authorization"))
    answer.make_conditional(request)
    return answer
