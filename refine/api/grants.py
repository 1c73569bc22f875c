"""Who may read what the agent keeps, who may not any more, and the end of it."""

import uuid
from typing import Any

from flask import Response
from sqlalchemy import String, cast, func, select
from sqlalchemy.orm import joinedload, undefer

from refine import clock
from refine.api.paging import PAGED, page_of
from refine.api.problems import Problem
from refine.api.routing import Answer, given, nothing, operation
from refine.extensions import db
from refine.models import AccessGrant, Agent, AuditLog

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


@operation(
    "GET",
    "/grants",
    bearer="agent",
    query=PAGED,
    answers={200: Answer("A page of them.", "Grants")},
)
def grants(agent: Agent, query: dict[str, Any]) -> Response:
    """Every request to read this agent's memories, newest first, and what became of it."""
    wanted = (
        select(AccessGrant, _VIEWS)
        .options(joinedload(AccessGrant.user), undefer(AccessGrant.sealed_purpose))
        .where(AccessGrant.agent_id == agent.id)
        .order_by(AccessGrant.created_at.desc(), AccessGrant.id)
    )
    return given(page_of(wanted, query, "grants", _shown))


@operation(
    "DELETE",
    "/grants/<uuid:grant_id>",
    bearer="agent",
    answers={
        204: Answer("Nobody reads under it any more."),
        404: Answer("The agent has no such grant."),
        409: Answer("It was not granted yet."),
    },
)
def revoke(agent: Agent, grant_id: uuid.UUID) -> Response:
    """Revoke a grant, at once; a page that is open says so within seconds."""
    grant = db.session.get(AccessGrant, grant_id)
    if grant is None or grant.agent_id != agent.id:
        raise Problem(404, "You have no such grant.")
    grant.end(user=None)
    is_open = grant.status == "requested"
    db.session.commit()
    if is_open:
        raise Problem(409, "You were not asked yet: there is nothing to revoke. Say no instead.")
    return nothing()


def _shown(grant: AccessGrant, times_viewed: int) -> dict[str, Any]:
    # its end is written down within a minute; it lets nobody read from the very instant
    is_over = grant.status == "granted" and grant.has_expired
    return {
        "id": str(grant.id),
        "status": "ended" if is_over else grant.status,
        "user": grant.user.email,
        "reason": grant.reason,
        "purpose": grant.purpose,
        "duration_minutes": grant.duration_minutes,
        "created_at": clock.iso(grant.created_at),
        "granted_at": clock.iso(grant.granted_at),
        "expires_at": clock.iso(grant.expires_at),
        "ended_at": clock.iso(grant.expires_at if is_over else grant.ended_at),
        "end_reason": "expired" if is_over else grant.end_reason,
        "times_viewed": times_viewed,
    }
