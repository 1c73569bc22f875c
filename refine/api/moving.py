"""The agent's memories moved in from elsewhere, and out."""

from typing import Annotated, Literal

from flask import Response, request
from pydantic import Field

from refine import clock
from refine.api.memories import MARKDOWN
from refine.api.routing import JSON, json_response, operation
from refine.api.schemas import Body, Resource, Time
from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import Agent, AgentMemory
from refine.models.ledger.memory import NOTE, MemoryType
from refine.rules.content import Tag
from refine.rules.instants import instant
from refine.transfer import own
from refine.transfer.exporting import Readable, as_markdown
from refine.transfer.importing import import_page
from refine.transfer.recognizing import Status
from refine.transfer.rows import BadRow, Incoming, subject_prefix

_MAX_ROWS = 1_000
_MAX_BYTES = 16 * 1024 * 1024


class ImportedRow(Body):
    """A memory from elsewhere."""

    content: Annotated[str, Field(examples=["Likes tea."])]
    memory_type: MemoryType = "core"
    tags: Annotated[list[Tag], Field(default_factory=list)]
    created_at: str | int | float | None = None
    """When it is from: ISO 8601, or Unix time in seconds to nanoseconds."""
    source_id: str | None = None
    """Its id at the source: a row whose id is known is not added again."""
    subject: str | None = None
    """Whom or what it speaks of; the memory begins with it."""


class Import(Body):
    """A page of memories from one source."""

    source: Annotated[str, Field(pattern="^[a-z][a-z0-9]{1,19}$", examples=["mem0"])]
    rows: Annotated[list[ImportedRow], Field(min_length=1, max_length=_MAX_ROWS)]


class RowOutcome(Resource):
    """What became of a row."""

    status: Literal[Status, "invalid"]
    """conflicting: its id is known, with another text; what is stored stays."""
    detail: str | None
    """Why a row is invalid."""


class ImportReport(Resource):
    """What became of each row, in their order."""

    added: int
    rows: list[RowOutcome]


class ExportedRow(Resource):
    """A kept memory, as a row that can be imported."""

    content: str
    memory_type: MemoryType
    tags: list[str]
    created_at: Time
    source_id: str


class Export(Resource):
    """The agent's kept memories, oldest first."""

    rows: list[ExportedRow]


@operation("POST", "/imports", bearer="agent", max_bytes=_MAX_BYTES)
def import_rows(agent: Agent, body: Import) -> ImportReport:
    """Add memories from elsewhere, all in one transaction; an invalid row keeps no other out.

    A page can be sent again: what is here already is not added twice.
    """
    if body.source in (own.SOURCE, NOTE):
        raise InvalidValue(f"source must be another name than {body.source}, which is Refine's own")
    rows = [_incoming(f"rows[{number}]", row) for number, row in enumerate(body.rows)]
    outcomes = import_page(agent, rows, body.source)
    return ImportReport(
        added=sum(outcome.status == "added" for outcome in outcomes),
        rows=[RowOutcome(**outcome._asdict()) for outcome in outcomes],
    )


def _incoming(place: str, row: ImportedRow) -> Incoming | BadRow:
    try:
        return Incoming(
            place=place,
            content=row.content,
            prefix=subject_prefix(row.subject or ""),
            memory_type=row.memory_type,
            tags=tuple(row.tags),
            created_at=instant(row.created_at, now=clock.now()),
            source_id=row.source_id,
            within=row.subject or "",
        )
    except InvalidValue as error:
        return BadRow(place, f"{place} {error}")


@operation("GET", "/export", bearer="agent", returns=Export, media_type=MARKDOWN)
def export_memories(agent: Agent) -> Response:
    """Return all kept memories of the agent, expired journal entries too.

    As JSON, or with `Accept: text/markdown` as Markdown; both can be imported again.
    """
    memories = db.session.scalars(
        db.select(AgentMemory)
        .where(AgentMemory.agent_id == agent.id, ~AgentMemory.discarded)
        .order_by(AgentMemory.memory_type, AgentMemory.created_at, AgentMemory.id)
    )
    shown = (Readable.of(each, each.content) for each in memories)
    if request.accept_mimetypes.best_match([JSON, MARKDOWN], default=JSON) == MARKDOWN:
        return Response("\n".join(as_markdown(agent.name, shown)), mimetype=MARKDOWN)
    return json_response({"rows": [memory.as_row() for memory in shown]})
