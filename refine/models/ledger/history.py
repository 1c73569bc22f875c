"""An agent's token mass over time, from its audit records."""

import uuid
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import select

from refine.extensions import db
from refine.models.audit import AuditLog
from refine.models.ledger.image import mass_of


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
    mass_after = AuditLog.data["mass_after"].as_integer()
    newest = (
        select(AuditLog.created_at, mass_after, AuditLog.action, AuditLog.session_id, AuditLog.id)
        .where(AuditLog.agent_id == agent_id, mass_after.is_not(None))
        .order_by(AuditLog.sequence.desc())
        .limit(limit)
    )
    found = [Mass(*row) for row in reversed(db.session.execute(newest).all())]
    if not found:
        return []
    first = db.session.get_one(AuditLog, found[0].record_id)
    before = found[0].tokens - effect_tokens(first)
    return [Mass(min(since, found[0].at), before, "", None, first.id), *found]


def effect_tokens(record: AuditLog) -> int:
    """Return by how many tokens a record changed the mass; a new memory counts in full."""
    return sum(
        mass_of(memory["after"]) - mass_of(memory["before"])
        for memory in record.data.get("memories", [])
    )
