"""The agent's own audit records: every change to its memories, and who made it."""

import uuid
from itertools import accumulate
from typing import Annotated, Any

from flask import Response
from pydantic import Field
from sqlalchemy import Select, func
from sqlalchemy.orm import undefer

from refine.api.paging import Page, PageQuery, found_page, page_response
from refine.api.routing import ResponseSpec, operation
from refine.api.schemas import Resource, Time
from refine.api.scope import rows_of_agent
from refine.models import Agent, AuditLog
from refine.models.ledger import contents_in
from refine.models.ledger.history import shown_data
from refine.models.people.recording import CLIENT_KEY

# Of contents, as they are sealed; a page with more has fewer records.
MAX_PAGE_BYTES = 4 * 1024**2

# The sealed part of these holds a human's words: search terms and notes.
_ACCESS_ACTIONS = "memory_access_"


class RecordQuery(PageQuery):
    """Which records."""

    action: Annotated[str, Field(min_length=1)] | None = None


class Record(Resource):
    """An audit record."""

    id: int
    sequence: int
    action: str
    subject_type: str | None
    subject_id: str | None
    session_id: uuid.UUID | None
    user_id: int | None
    """null if the agent itself or the system acted."""
    data: dict[str, Any]
    sealed: dict[str, Any]
    """Contents before and after. Empty in access records, which hold the reader's own words."""
    created_at: Time
    hash: str


class Records(Page):
    """A page of records."""

    records: list[Record]


@operation(
    "GET", "/audit", bearer="agent", responses={200: ResponseSpec("A page of records.", Records)}
)
def audit(agent: Agent, query: RecordQuery) -> Response:
    """List the agent's records, newest first, with the contents before and after each change."""
    rows = rows_of_agent(agent, AuditLog).order_by(AuditLog.sequence.desc())
    if query.action is not None:
        rows = rows.where(AuditLog.action == query.action)
    query = _bounded(query, rows)
    return page_response(Records, rows.options(undefer(AuditLog.sealed_text)), query, _record)


def _bounded(query: RecordQuery, rows: Select[Any]) -> RecordQuery:
    """Ask for as many records as ``MAX_PAGE_BYTES`` allow, and at least for one.

    That of an import holds the contents of hundreds of memories.
    """
    sizes = rows.with_only_columns(func.coalesce(func.octet_length(AuditLog.sealed_text), 0))
    totals = accumulate(row[0] for row in found_page(sizes, query).rows)
    fitting = sum(total <= MAX_PAGE_BYTES for total in totals)
    return query.model_copy(update={"limit": max(1, min(query.limit, fitting))})


def _record(record: AuditLog) -> Record:
    return Record.of(
        record,
        subject_type=record.auditable_type,
        subject_id=record.auditable_id,
        # from where a person acted is for the admins
        data={name: value for name, value in shown_data(record).items() if name != CLIENT_KEY},
        sealed={} if record.action.startswith(_ACCESS_ACTIONS) else _contents(record),
    )


def _contents(record: AuditLog) -> dict[str, Any]:
    sealed = record.sealed
    return {**sealed, "memories": contents_in(sealed)} if "memories" in sealed else sealed
