"""What audit records tell of memories, among it an agent's token mass over time."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Select, bindparam, func, select

from refine.extensions import db, read_plainly
from refine.models.audit import AuditLog, ChainHead
from refine.models.ledger.image import images_in, mass_of, recorded_digests
from refine.models.ledger.row import MemoryRow

# Hidden from people: by comparing them with those of a memory that they added themselves, they
# could confirm a guess.
_CONFIRM_GUESSES = frozenset({"content_hash", "digest", "source_id"})


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
    newest = db.session.execute(_newest_masses(), {"agent_id": agent_id, "limit": limit}).all()
    found = [Mass(*row) for row in reversed(newest)]
    if not found:
        return []
    first = found[0]
    data = db.session.scalars(select(AuditLog.data).where(AuditLog.id == first.record_id)).one()
    before = first.tokens - effect_tokens(data)
    return [Mass(min(since, first.at), before, "", None, first.record_id), *found]


@cache
def _newest_masses() -> Select[*tuple[Any, ...]]:
    # by the chain, whose records are in order in an index
    is_mine = ChainHead.is_of_agent(bindparam("agent_id", type_=BigInteger))
    chain_id = select(ChainHead.id).where(is_mine).scalar_subquery()
    at = read_plainly(AuditLog.__table__.c.created_at)
    return (
        select(at, AuditLog.mass_after, AuditLog.action, AuditLog.session_id, AuditLog.id)
        .where(AuditLog.chain_id == chain_id, AuditLog.mass_after.is_not(None))
        .order_by(AuditLog.sequence.desc())
        .limit(bindparam("limit"))
    )


def records_of_memory(memory: MemoryRow) -> Select[AuditLog]:
    """Return a query for the records that changed the memory, newest first."""
    return (
        select(AuditLog)
        .where(
            AuditLog.agent_id == memory.agent_id,
            AuditLog.is_about_memory(memory.id),
            AuditLog.mass_after.is_not(None),
        )
        .order_by(AuditLog.sequence.desc())
    )


def record_ids_about(memory_id: int) -> Sequence[int]:
    """Return the ids of the records that changed this memory, or showed it to somebody.

    By themselves, because the database takes them for so many that it would sort all others.
    """
    return db.session.scalars(select(AuditLog.id).where(AuditLog.is_about_memory(memory_id))).all()


def count_changes(agent_id: int) -> int:
    """Return how many records tell of changed memories; unlike memories, none can be moved away."""
    is_change = AuditLog.mass_after.is_not(None)
    count = select(func.count()).where(AuditLog.agent_id == agent_id, is_change)
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


def effect_tokens(data: Mapping[str, Any]) -> int:
    """Return by how many tokens a record with this data changed the mass.

    A new memory counts in full.
    """
    return sum(mass_of(memory["after"]) - mass_of(memory["before"]) for memory in images_in(data))


def shown_data(record: AuditLog) -> dict[str, Any]:
    """Return ``data`` as it may leave the database: without what could confirm a guessed memory."""
    images = {"memories": images_in(record.data)} if "memories" in record.data else {}
    shown: dict[str, Any] = _without({**record.data, **images}, _CONFIRM_GUESSES)
    return shown


def _without(value: Any, hidden: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(each, hidden) for key, each in value.items() if key not in hidden}
    return [_without(each, hidden) for each in value] if isinstance(value, list) else value
