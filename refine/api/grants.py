"""Requests to read the agent's memories, their outcomes, and revoking access."""

import uuid
from typing import Annotated

from flask import Response
from sqlalchemy import String, cast, func, select
from sqlalchemy.orm import joinedload, undefer

from refine.api.paging import Page, PageQuery, page_response
from refine.api.problems import Problem
from refine.api.routing import ResponseSpec, no_content, operation
from refine.api.schemas import EmptyBody, OneOf, Resource, Time
from refine.api.scope import agent_row_or_404, rows_of_agent
from refine.extensions import db
from refine.models import AccessGrant, Agent, AuditLog
from refine.models.runs.access import END_REASONS, REASONS, STATUSES

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
    status: Annotated[str, OneOf(STATUSES)]
    user: str
    """Who asked."""
    reason: Annotated[str, OneOf(REASONS)]
    purpose: str
    """In the user's own words, as shown to the agent."""
    duration_minutes: int
    created_at: Time
    granted_at: Time | None
    expires_at: Time | None
    ended_at: Time | None
    end_reason: Annotated[str, OneOf(END_REASONS)] | None
    times_viewed: int
    """How many times content was read under it."""


class Grants(Page):
    """A page of grants."""

    grants: list[Grant]


@operation(
    "GET", "/grants", bearer="agent", responses={200: ResponseSpec("A page of grants.", Grants)}
)
def grants(agent: Agent, query: PageQuery) -> Response:
    """List every request to read this agent's memories, newest first, with its outcome."""
    rows = (
        rows_of_agent(agent, AccessGrant)
        .add_columns(_VIEWS)
        .options(joinedload(AccessGrant.user), undefer(AccessGrant.sealed_purpose))
        .order_by(AccessGrant.created_at.desc(), AccessGrant.id)
    )
    return page_response(Grants, rows, query, _grant)


@operation(
    "DELETE",
    "/grants/<uuid:grant_id>",
    bearer="agent",
    responses={
        204: ResponseSpec("The grant is revoked."),
        404: ResponseSpec("The agent has no such grant."),
        409: ResponseSpec("The request has not been answered yet."),
    },
)
def revoke(agent: Agent, grant_id: uuid.UUID) -> Response:
    """Revoke a grant immediately; pages that show content close within seconds."""
    grant = agent_row_or_404(agent, AccessGrant, grant_id, "grant")
    grant.end(user=None)
    is_pending = grant.status == "requested"
    db.session.commit()
    if is_pending:
        raise Problem(
            409, "You have not been asked yet, so there is nothing to revoke. Answer no instead."
        )
    return no_content()


@operation(
    "POST",
    "/grants/<uuid:grant_id>/allow-asking",
    bearer="agent",
    responses={
        204: ResponseSpec("The user may ask again."),
        404: ResponseSpec("The agent has no such request."),
        409: ResponseSpec("The agent has not declined this request."),
    },
)
def allow_asking(agent: Agent, grant_id: uuid.UUID, body: EmptyBody) -> Response:
    """Let the user of a declined request ask again without waiting."""
    agent_row_or_404(agent, AccessGrant, grant_id, "request").allow_asking_again()
    db.session.commit()
    return no_content()


def _grant(grant: AccessGrant, times_viewed: int) -> Grant:
    return Grant.of(
        grant,
        user=grant.user.email,
        times_viewed=times_viewed,
        status=grant.current_status,
        ended_at=grant.current_ended_at,
        end_reason=grant.current_end_reason,
    )
