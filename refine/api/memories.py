"""The agent's memories: listing and saving."""

from typing import Annotated

from flask import Response
from pydantic import Field

from refine.api.paging import Page, PageQuery, page_response
from refine.api.routing import ResponseSpec, json_response, operation
from refine.api.schemas import Body, OneOf, QueryBoolean, Resource, Time
from refine.api.scope import rows_of_agent
from refine.extensions import db
from refine.models import Agent, AgentMemory
from refine.models.ledger import MEMORY_TYPES
from refine.rules.content import MAX_CONTENT_CHARACTERS, TAGS

MemoryType = Annotated[str, OneOf(MEMORY_TYPES)]
Tag = Annotated[str, OneOf(TAGS)]


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
    recorded_at: Time
    discarded_at: Time | None


class Memories(Page):
    """A page of memories."""

    memories: list[Memory]


@operation(
    "GET",
    "/memories",
    bearer="agent",
    responses={200: ResponseSpec("A page of memories.", Memories)},
)
def memories(agent: Agent, query: MemoryQuery) -> Response:
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
    rows = rows.order_by(AgentMemory.id.desc())
    return page_response(Memories, rows, query, Memory.of)


@operation(
    "POST",
    "/memories",
    bearer="agent",
    responses={
        201: ResponseSpec("Memory saved.", Memory),
        200: ResponseSpec("The existing core memory that the new one duplicates exactly.", Memory),
    },
)
def save(agent: Agent, body: NewMemory) -> Response:
    """Save a memory."""
    memory, already_present = agent.ledger.remember(body.content, body.memory_type, body.tags)
    db.session.commit()
    return json_response(Memory.of(memory), 200 if already_present else 201)
