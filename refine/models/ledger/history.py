"""Histories from audit records: the token mass over time, and changes of a memory."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, DateTime, Select, column, func, literal, select, true
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import undefer_group

from refine.extensions import db
from refine.models.audit import AuditLog
from refine.models.ledger.image import Image, changes_in, images_in, mass_of
from refine.models.ledger.memory import AgentMemory

# Hidden from people: by comparing them with those of a memory that was imported for them, they
# could confirm a guess.
_CONFIRM_GUESSES = frozenset({"content_hash", "digest", "source_id", "already_here"})

# Large or manual changes of the mass, other than sessions.
NOTABLE = (
    "memory_refinement_rollback",
    "memory_imported",
    "memory_discarded",
    "memory_restored",
    "memory_corrected",
    "memory_forgotten",
    "memory_erased",
)
# More cannot be told apart on a screen.
_SAMPLES = 150
_NOTED = 50
_LATEST = 1_000


class Mass(NamedTuple):
    at: datetime
    record_id: int
    tokens: int
    action: str
    session_id: uuid.UUID | None


_MASS = (
    AuditLog.created_at,
    AuditLog.id,
    AuditLog.mass_after,
    AuditLog.action,
    AuditLog.session_id,
)


def masses(agent_id: int, since: datetime, until: datetime) -> list[Mass]:
    """Return the mass over this time, oldest first, from ``since``: at ``_SAMPLES`` instants and
    after the last ``_NOTED`` of the ``NOTABLE`` records. Empty without records.
    """
    found = sorted(_sampled(agent_id, since, until) | _notable(agent_id, since, until))
    if not found:
        return []
    if found[0].at <= since:
        return [found[0]._replace(at=since, action=""), *found[1:]]
    return [Mass(since, 0, 0, "", None), *found]


def _sampled(agent_id: int, since: datetime, until: datetime) -> set[Mass]:
    pause = (until - since) / _SAMPLES
    at = [*(since + pause * number for number in range(_SAMPLES)), until]
    unnested = func.unnest(literal(at, ARRAY(DateTime(timezone=True))))
    each = column("each", DateTime(timezone=True))
    instants = unnested.table_valued(each, name="instants").render_derived()
    before = select(*_MASS).where(
        AuditLog.agent_id == agent_id,
        AuditLog.created_at <= instants.c.each,
        AuditLog.mass_after.is_not(None),
    )
    last = before.order_by(AuditLog.created_at.desc(), AuditLog.id.desc()).limit(1).lateral()
    found = db.session.execute(select(*last.c).select_from(instants).join(last, true()))
    return {Mass._make(row) for row in found}


def _notable(agent_id: int, since: datetime, until: datetime) -> set[Mass]:
    newest_first = AuditLog.created_at.desc(), AuditLog.id.desc()
    in_time = AuditLog.created_at > since, AuditLog.created_at <= until
    has_mass = AuditLog.mass_after.is_not(None)
    latest = select(AuditLog.id).where(AuditLog.agent_id == agent_id, has_mass, *in_time)
    noted = select(*_MASS).where(
        AuditLog.id.in_(latest.order_by(*newest_first).limit(_LATEST)),
        AuditLog.action.in_(NOTABLE),
    )
    return {
        Mass._make(row) for row in db.session.execute(noted.order_by(*newest_first).limit(_NOTED))
    }


def records_of_memory(memory: AgentMemory) -> Select[AuditLog]:
    return (
        select(AuditLog)
        .where(
            AuditLog.agent_id == memory.agent_id,
            AuditLog.is_about_memory(memory.id),
            AuditLog.mass_after.is_not(None),
        )
        .order_by(AuditLog.sequence.desc())
    )


def records_since_first(agent_id: int, *of_first: ColumnElement[bool]) -> Sequence[AuditLog]:
    """Return the agent's records of changes from the first such one on, the newest first."""
    is_change = AuditLog.data["image_version"].as_string().is_not(None)
    mine = AuditLog.agent_id == agent_id, is_change
    first = select(func.min(AuditLog.sequence)).where(*mine, *of_first)
    records = select(AuditLog).where(*mine, AuditLog.sequence >= first.scalar_subquery())
    newest_first = records.order_by(AuditLog.sequence.desc())
    return db.session.scalars(newest_first.options(undefer_group("sealed"))).all()


def left_by_records(memory: AgentMemory, limit: int) -> list[tuple[AuditLog, Image]]:
    """Return the latest records that changed a memory, newest first, and what each left of it."""
    records = records_of_memory(memory).options(undefer_group("sealed")).limit(limit)
    return [
        (record, change.after)
        for record in db.session.scalars(records)
        for change in changes_in(record.data, record.sealed)
        if change.memory_id == memory.id
    ]


def record_ids_about(memory_id: int) -> Sequence[int]:
    """Return ids alone: the database overestimates their number and would sort all others."""
    return db.session.scalars(select(AuditLog.id).where(AuditLog.is_about_memory(memory_id))).all()


def effect_tokens(data: Mapping[str, Any]) -> int:
    """Return by how many tokens a record changed the mass; a new memory counts in full."""
    return sum(mass_of(memory["after"]) - mass_of(memory["before"]) for memory in images_in(data))


def shown_data(record: AuditLog) -> dict[str, Any]:
    """Return ``data`` as it may leave the database: without what could confirm a guessed memory."""
    images = {"memories": images_in(record.data)} if "memories" in record.data else {}
    shown: dict[str, Any] = _without_guessable({**record.data, **images})
    return shown


def _without_guessable(value: Any) -> Any:
    if isinstance(value, dict):
        shown = value.items()
        return {key: _without_guessable(each) for key, each in shown if key not in _CONFIRM_GUESSES}
    return list(map(_without_guessable, value)) if isinstance(value, list) else value
