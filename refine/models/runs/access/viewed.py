"""What was read under a grant: each thing once, from the records that were written before it."""

from functools import cache
from typing import Any

from sqlalchemy import Select, String, bindparam, cast, func, literal, select, true, union_all
from sqlalchemy.dialects.postgresql import JSONB

from refine.models.audit import AuditLog
from refine.models.columns import constant


@cache
def select_viewed() -> Select[*tuple[Any, ...]]:
    """Return the query for what was read under a grant, most recent first.

    It finds kind, id, how often, and when; its parameter ``grant_id`` is a text.

    The kinds are those of a record's data: memory, record, session, prompts. A memory counts as
    read wherever its content was shown.
    """
    viewed = (
        select(AuditLog.created_at, cast(AuditLog.data, JSONB).label("data"))
        .where(
            AuditLog.auditable_type == constant("AccessGrant"),
            AuditLog.auditable_id == bindparam("grant_id"),
            AuditLog.action == constant("memory_access_viewed"),
        )
        .cte("viewed")
    )
    data, at = viewed.c.data, viewed.c.created_at

    def each(kind: str, name: str) -> Select[*tuple[Any, ...]]:
        ids = func.jsonb_array_elements_text(data[name]).table_valued("value").lateral()
        told = select(literal(kind).label("kind"), ids.c.value.label("id"), at)
        return told.select_from(viewed.join(ids, true()))

    def one(kind: str, name: str) -> Select[*tuple[Any, ...]]:
        told = select(literal(kind), data[name].astext, at)
        return told.where(data.has_key(name))

    prompts = select(literal("prompts"), literal(""), at).where(data.has_key("prompts"))
    things = union_all(
        each("memory", "ids"),
        each("record", "record_ids"),
        one("record", "record_id"),
        one("session", "session_id"),
        prompts,
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
