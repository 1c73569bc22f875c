"""How often agents were asked for access, and what was read under a grant."""

import uuid
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Select, String, cast, func, literal, or_, select, true, union_all
from sqlalchemy.dialects.postgresql import JSONB

from refine.extensions import db
from refine.models.agent import Agent
from refine.models.agent.configuring import CHANGE_HISTORY_WINDOW
from refine.models.audit import AuditLog
from refine.models.people import User
from refine.models.runs.access.grant import AccessGrant


class AskedCounts(NamedTuple):
    """How often an agent was asked for access, and what it answered."""

    asked: int
    granted: int
    declined: int


def asked_counts(agent: Agent, user: User | None = None) -> AskedCounts:
    """Count the requests to this agent, of one user or of all, and its answers."""
    counts = select(
        func.count(),
        func.count(AccessGrant.granted_at),
        func.count().filter(AccessGrant.status == "declined"),
    ).where(AccessGrant.agent_id == agent.id)
    if user is not None:
        counts = counts.where(AccessGrant.user_id == user.id)
    return AskedCounts(*db.session.execute(counts).one())


def asked_lately(
    agent: Agent, at: datetime, *, except_for: uuid.UUID | None = None
) -> dict[str, int]:
    """Count the requests within ``CHANGE_HISTORY_WINDOW`` before ``at``, without the given one.

    How many there were, of how many users, and how many the agent declined, by its records.
    """
    requested = AuditLog.action == "memory_access_requested"
    declined = AuditLog.action == "memory_access_declined"
    counts = select(
        func.count().filter(requested).label("requests"),
        func.count(AuditLog.user_id.distinct()).filter(requested).label("users"),
        func.count().filter(declined).label("declined"),
    ).where(
        AuditLog.agent_id == agent.id,
        or_(requested, declined),
        AuditLog.auditable_id != str(except_for),
        AuditLog.created_at > at - CHANGE_HISTORY_WINDOW,
    )
    return dict(db.session.execute(counts).one()._mapping)


def select_viewed(grant: AccessGrant) -> Select[*tuple[Any, ...]]:
    """Return the query for what was read under a grant, most recent first.

    It finds kind, id, how often, and when. The kinds are those of a record's data: memory, record,
    session, prompts. A memory counts as read wherever its content was shown.
    """
    viewed = (
        select(AuditLog.created_at, cast(AuditLog.data, JSONB).label("data"))
        .where(grant.is_subject(), AuditLog.action == "memory_access_viewed")
        .cte("viewed")
    )
    data, at = viewed.c.data, viewed.c.created_at

    def each(kind: str, name: str) -> Select[*tuple[Any, ...]]:
        ids = func.jsonb_array_elements_text(data[name]).table_valued("value").lateral()
        found = select(literal(kind).label("kind"), ids.c.value.label("id"), at)
        return found.select_from(viewed.join(ids, true()))

    def one(kind: str, id_: Any, name: str) -> Select[*tuple[Any, ...]]:
        return select(literal(kind), id_, at).where(data.has_key(name))

    things = union_all(
        each("memory", "ids"),
        each("record", "record_ids"),
        one("record", data["record_id"].astext, "record_id"),
        one("session", data["session_id"].astext, "session_id"),
        one("prompts", literal(""), "prompts"),
    ).subquery()
    counted = (
        select(
            cast(things.c.kind, String).label("kind"),
            things.c.id,
            func.count().label("times"),
            func.min(things.c.created_at).label("first_at"),
            func.max(things.c.created_at).label("last_at"),
        )
        .group_by(things.c.kind, things.c.id)
        .subquery()
    )
    return select(counted).order_by(counted.c.last_at.desc(), counted.c.kind, counted.c.id)
