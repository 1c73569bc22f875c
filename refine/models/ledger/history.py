"""What an agent's audit records tell of its memories, among it the token mass over time."""

import uuid
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import func, select

from refine.extensions import db
from refine.models.audit import AuditLog
from refine.models.ledger.image import mass_of, recorded_digests

_MASS_AFTER = AuditLog.data["mass_after"].as_integer()


class Mass(NamedTuple):
    """An agent's token mass after a record."""

    at: datetime
    tokens: int
    action: str
    session_id: uuid.UUID | None
    record_id: int


def masses(agent_id: int, since: datetime, limit: int) -> list[Mass]:
    """Return the agent's token mass after each of its last ``limit`` records, oldest first.

    The first item is the mass before these records: at ``since``, or at the first record if that
    is earlier.
    """
    newest = (
        select(AuditLog.created_at, _MASS_AFTER, AuditLog.action, AuditLog.session_id, AuditLog.id)
        .where(AuditLog.agent_id == agent_id, _MASS_AFTER.is_not(None))
        .order_by(AuditLog.sequence.desc())
        .limit(limit)
    )
    found = [Mass(*row) for row in reversed(db.session.execute(newest).all())]
    if not found:
        return []
    first = db.session.get_one(AuditLog, found[0].record_id)
    before = found[0].tokens - effect_tokens(first)
    return [Mass(min(since, found[0].at), before, "", None, first.id), *found]


def count_changes(agent_id: int) -> int:
    """Return how many records tell of changed memories; unlike memories, none can be moved away."""
    count = select(func.count()).where(AuditLog.agent_id == agent_id, _MASS_AFTER.is_not(None))
    return db.session.scalar(count) or 0


def ids_imported_by_users(agent_id: int) -> set[int]:
    """Return the ids of the memories that users of the dashboard imported: they know the texts."""
    imports = select(AuditLog.data).where(
        AuditLog.agent_id == agent_id,
        AuditLog.action == "memory_imported",
        AuditLog.user_id.is_not(None),
    )
    return {
        memory_id for data in db.session.scalars(imports) for memory_id in recorded_digests(data)
    }


def effect_tokens(record: AuditLog) -> int:
    """Return by how many tokens a record changed the mass; a new memory counts in full."""
    return sum(
        mass_of(memory["after"]) - mass_of(memory["before"])
        for memory in record.data.get("memories", [])
    )
