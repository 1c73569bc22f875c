"""The agent's memories: listed, saved, corrected, erased; and what it sees in conversation."""

from hashlib import sha256
from typing import Annotated, Literal

from flask import Response, request
from pydantic import Field

from refine.api.problems import Problem
from refine.api.routing import JSON, json_response, operation
from refine.api.rows import Page, PageQuery, agent_row_or_404, page_of, rows_of_agent
from refine.api.schemas import Body, Omittable, Query, QueryBoolean, Resource, Time
from refine.models import Agent, AgentMemory, correcting
from refine.models.columns import in_ids
from refine.models.erasing import erase
from refine.models.ledger.history import left_by_records
from refine.models.ledger.memory import MemoryType
from refine.rules.content import MAX_CONTENT_CHARACTERS, MAX_QUERY_CHARACTERS, Tag
from refine.rules.second_reading import Reason

_MAX_VERSIONS = 100
MARKDOWN = "text/markdown"


class MemoryQuery(PageQuery):
    """Which memories."""

    type: Annotated[MemoryType, Omittable]
    tag: Annotated[Tag, Omittable]
    discarded: QueryBoolean = False
    """true lists discarded memories instead of kept ones."""
    retired: QueryBoolean = False
    """true lists only those that were discarded as outdated or wrong."""
    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARACTERS), Omittable]
    """A part of the text, in any case."""


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
    retired_reason: Literal["outdated", "wrong"] | None
    replaced_by_id: int | None


class Version(Resource):
    """What a change left of a memory."""

    sequence: int
    """The number of the record in the agent's chain."""
    at: Time
    action: str
    content: str
    discarded: bool


class MemoryWithHistory(Memory):
    """A memory, with its latest changes."""

    history: list[Version]
    """Newest first, at most 100; empty if nothing was recorded."""


class Correction(Body):
    """The new text of a memory."""

    content: Annotated[str, Field(min_length=1, examples=["What is right."])]
    reason: Reason = "wrong"
    """outdated: the old text no longer holds; wrong: it never did; same: both say the same."""


class RemovalQuery(Query):
    """How a memory goes."""

    reason: Reason = "outdated"
    for_good: QueryBoolean = False
    """true erases it, so that nobody can restore it: ask twice, a day apart."""
    with_descendants: QueryBoolean = False
    """true also erases what was made of it."""


class Removal(Resource):
    """What became of a memory."""

    status: Literal["forgotten", "scheduled", "erased"]
    ids: list[int]
    """Besides the memory itself, for good: what it was made of or replaced, and copies."""
    descendants: list[int]
    """What was made of these and still says something of them."""
    from_at: Time | None
    """When a scheduled erasure can be confirmed by a second request."""


class MemoryPage(Page):
    """A page of memories."""

    memories: list[Memory]


class MemoryContext(Resource):
    """The memory context, with its size."""

    context: str | None
    """Markdown for the agent's prompts; null if there are no memories."""
    core_tokens: int
    budget: int


@operation("GET", "/memories", bearer="agent")
def list_memories(agent: Agent, query: MemoryQuery) -> MemoryPage:
    """List the agent's memories, most recently recorded first.

    Expired journal memories are included, although they are not part of the context.
    """
    is_wanted = AgentMemory.discarded if query.discarded else ~AgentMemory.discarded
    if query.retired:
        is_wanted = AgentMemory.retired_reason.is_not(None)
    rows = rows_of_agent(agent, AgentMemory).where(is_wanted, ~AgentMemory.is_erased)
    if query.type is not None:
        rows = rows.where(AgentMemory.memory_type == query.type)
    if query.tag is not None:
        rows = rows.where(AgentMemory.tags.contains([query.tag]))
    if query.query is not None:
        found = agent.ledger.matching(rows, query.query)
        rows = rows.where(in_ids(AgentMemory.id, [memory.id for memory in found]))
    return page_of(MemoryPage, rows.order_by(AgentMemory.id.desc()), query, Memory.of)


_EXISTING = "The existing core memory that the new one duplicates exactly."


@operation("POST", "/memories", bearer="agent", returns=Memory, status=201, other=(200, _EXISTING))
def save_memory(agent: Agent, body: NewMemory) -> tuple[Memory, int]:
    """Save a memory."""
    memory, already_present = agent.ledger.remember(body.content, body.memory_type, body.tags)
    return Memory.of(memory), 200 if already_present else 201


@operation("GET", "/memories/<int:memory_id>", bearer="agent")
def get_memory(agent: Agent, memory_id: int) -> MemoryWithHistory:
    """Return one memory, kept or discarded, and how it changed."""
    found = _own(agent, memory_id)
    history = [
        Version(
            sequence=record.sequence,
            at=record.created_at,
            action=record.action,
            content=left["content"],
            discarded=left["discarded_at"] is not None,
        )
        for record, left in left_by_records(found, _MAX_VERSIONS)
    ]
    return MemoryWithHistory.of(found, history=history)


@operation("PATCH", "/memories/<int:memory_id>", bearer="agent", returns=Memory)
def correct_memory(agent: Agent, memory_id: int, body: Correction) -> Memory:
    """Put a new memory in place of a kept one, which is set aside and can be restored.

    The answer is the new memory, with an id of its own.
    """
    _own(agent, memory_id)
    return Memory.of(correcting.correct(agent, memory_id, body.content, body.reason))


_SCHEDULED = "The erasure can be confirmed by the same request, a day later."


@operation(
    "DELETE", "/memories/<int:memory_id>", bearer="agent", returns=Removal, other=(202, _SCHEDULED)
)
def forget_memory(agent: Agent, memory_id: int, query: RemovalQuery) -> tuple[Removal, int]:
    """Forget a kept memory, which can be restored; or erase any memory for good."""
    _own(agent, memory_id)
    if not query.for_good:
        correcting.forget(agent, memory_id, query.reason)
        return Removal(status="forgotten", ids=[memory_id], descendants=[], from_at=None), 200
    done = erase(agent, memory_id, "agent", with_descendants=query.with_descendants)
    if done.from_at is None:
        return Removal(status="erased", **done._asdict()), 200
    return Removal(status="scheduled", **done._asdict()), 202


def _own(agent: Agent, memory_id: int) -> AgentMemory:
    found = agent_row_or_404(agent, AgentMemory, memory_id, "memory")
    if found.is_erased:
        raise Problem(404, "The memory was erased for good.")
    return found


@operation("GET", "/context", bearer="agent", returns=MemoryContext, media_type=MARKDOWN)
def get_context(agent: Agent) -> Response:
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
        answer = json_response(MemoryContext(context=markdown, core_tokens=tokens, budget=budget))
    answer.set_etag(sha256(media_type.encode() + b"\n" + answer.get_data()).hexdigest())
    answer.headers["Cache-Control"] = "private, no-cache"
    answer.vary.update(("Accept", "Authorization"))
    answer.make_conditional(request)
    return answer
