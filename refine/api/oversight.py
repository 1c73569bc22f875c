"""What humans did with the agent: its audit records, and who asked to read its memories."""

import uuid
from itertools import accumulate
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import Select, String, cast, func, select
from sqlalchemy.orm import joinedload, undefer, undefer_group

from refine.api.problems import Problem
from refine.api.routing import operation
from refine.api.rows import Page, PageQuery, agent_row_or_404, found_page, page_of, rows_of_agent
from refine.api.schemas import Omittable, Resource, Time
from refine.models import AccessGrant, Agent, AuditLog
from refine.models.audit.record import CLIENT_KEY
from refine.models.ledger.history import shown_data
from refine.models.ledger.image import contents_in
from refine.models.runs.access.grant import EndReason, Status

# Of contents, as they are sealed; a page with more has fewer records.
MAX_PAGE_BYTES = 4 * 1024**2

# The sealed part of these holds a human's words: search terms and notes.
_ACCESS_ACTIONS = "memory_access_"


class RecordQuery(PageQuery):
    """Which records."""

    action: Annotated[str, Field(min_length=1), Omittable]


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


class RecordPage(Page):
    """A page of records."""

    records: list[Record]


@operation("GET", "/audit", bearer="agent")
def list_records(agent: Agent, query: RecordQuery) -> RecordPage:
    """List the agent's records, newest first, with the contents before and after each change."""
    rows = rows_of_agent(agent, AuditLog).order_by(AuditLog.sequence.desc())
    if query.action is not None:
        rows = rows.where(AuditLog.action == query.action)
    query = _bounded(query, rows)
    return page_of(RecordPage, rows.options(undefer_group("sealed")), query, _record)


def _bounded(query: RecordQuery, rows: Select[Any]) -> RecordQuery:
    """Limit records to ``MAX_PAGE_BYTES``: an import's holds hundreds of contents."""
    sizes = rows.with_only_columns(func.coalesce(func.octet_length(AuditLog.sealed_text), 0))
    totals = accumulate(row[0] for row in found_page(sizes, query).rows)
    fitting = sum(total <= MAX_PAGE_BYTES for total in totals)
    return query.model_copy(update={"limit": max(1, min(query.limit, fitting))})


def _record(record: AuditLog) -> Record:
    sealed = {} if record.action.startswith(_ACCESS_ACTIONS) else record.sealed
    if "memories" in sealed:
        sealed = {**sealed, "memories": contents_in(sealed)}
    return Record.of(
        record,
        subject_type=record.auditable_type,
        subject_id=record.auditable_id,
        # from where a person acted is for the admins
        data={name: value for name, value in shown_data(record).items() if name != CLIENT_KEY},
        sealed=sealed,
    )


_VIEWS = (
    select(func.count())
    .where(
        AuditLog.agent_id == AccessGrant.agent_id,
        AuditLog.action == "memory_access_viewed",
        AuditLog.auditable_type == "AccessGrant",
        AuditLog.auditable_id == cast(AccessGrant.id, String),
    )
    .correlate(AccessGrant)
    .scalar_subquery()
)


class Grant(Resource):
    """A request to read the agent's memories, and its outcome."""

    id: uuid.UUID
    status: Status
    user: str
    """Who asked."""
    reason: str
    purpose: str
    """In the user's own words, as shown to the agent."""
    duration_minutes: int
    session_id: uuid.UUID | None
    """If set, only what this session changed was asked for, or granted."""
    memory_ids: list[int] | None
    """If set, only these memories were asked for, or granted."""
    created_at: Time
    granted_at: Time | None
    expires_at: Time | None
    ended_at: Time | None
    end_reason: EndReason | None
    times_viewed: int
    """How many times content was read under it."""


class GrantPage(Page):
    """A page of grants."""

    grants: list[Grant]


@operation("GET", "/grants", bearer="agent")
def list_grants(agent: Agent, query: PageQuery) -> GrantPage:
    """List every request to read this agent's memories, newest first, with its outcome."""
    rows = (
        rows_of_agent(agent, AccessGrant)
        .add_columns(_VIEWS)
        .options(joinedload(AccessGrant.user), undefer(AccessGrant.sealed_purpose))
        .order_by(AccessGrant.created_at.desc(), AccessGrant.id)
    )
    return page_of(GrantPage, rows, query, _grant)


@operation("DELETE", "/grants/<uuid:grant_id>", bearer="agent", status=204)
def revoke_grant(agent: Agent, grant_id: uuid.UUID) -> None:
    """Revoke a grant immediately; pages that show content close within seconds."""
    grant = agent_row_or_404(agent, AccessGrant, grant_id, "grant")
    grant.end(user=None)
    if grant.status == "requested":
        raise Problem(
            409, "You have not been asked yet, so there is nothing to revoke. Answer no instead."
        )


def _grant(grant: AccessGrant, times_viewed: int) -> Grant:
    return Grant.of(
        grant,
        user=grant.user.email,
        times_viewed=times_viewed,
        status=grant.current_status,
        ended_at=grant.current_ended_at,
        end_reason=grant.current_end_reason,
    )
