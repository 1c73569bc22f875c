"""What the order of an agent's records must show, besides what ``faults.invariants`` asks.

Every breach is a sentence with ids and figures, never content.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import undefer_group

from refine.extensions import db
from refine.models import AuditLog, RefinementSession
from refine.models.ledger.image import Image, changes_in, state_of
from tests.factories import EDITS
from tests.faults.invariants import Before

_TOLD_EDITS = ("updated", "deleted", "consolidated")


def history_breaches(before: Before, told: Mapping[uuid.UUID, Sequence[str]]) -> list[str]:
    """Return what the agent's history shows that must not be; ``told`` is what tools answered."""
    db.session.rollback()
    mine = select(AuditLog).where(AuditLog.agent_id == before.agent_id)
    records = db.session.scalars(
        mine.where(AuditLog.sequence > before.sequence)
        .order_by(AuditLog.sequence)
        .options(undefer_group("sealed"))
    ).all()
    states = list(_states(before, records))
    found = list(_inexact_undos(before, records, states))
    sessions = select(RefinementSession).where(RefinementSession.agent_id == before.agent_id)
    for session in db.session.scalars(sessions):
        found += _told_otherwise(session, told.get(session.id))
    db.session.rollback()
    return found


def _states(before: Before, records: Sequence[AuditLog]) -> Iterator[dict[int, Image]]:
    """The memories after each record."""
    reached = dict(before.images)
    for record in records:
        reached |= {each.memory_id: each.after for each in _changes(record)}
        yield dict(reached)


def _changes(record: AuditLog) -> list:
    return changes_in(record.data, record.sealed)


def _inexact_undos(
    before: Before, records: Sequence[AuditLog], states: Sequence[dict[int, Image]]
) -> Iterator[str]:
    """An undo of one session leaves the session's memories as that found them."""
    found_by: dict[uuid.UUID, dict[int, Image | None]] = {}
    for record, state in zip(records, states, strict=True):
        if record.action in EDITS and record.session_id is not None:
            for change in _changes(record):
                found_by.setdefault(record.session_id, {}).setdefault(
                    change.memory_id, change.before
                )
        is_undo = record.data.get("operation") == "undo" and not record.data["and_after"]
        session_id = record.session_id
        for id_, image in found_by.get(session_id, {}).items() if is_undo and session_id else ():
            now = state_of(state[id_])
            if now != (state_of(image) if image else {**now, "discarded": True}):
                yield f"record {record.sequence} (undo) left memory {id_} otherwise"


def _told_otherwise(session: RefinementSession, told: Sequence[str] | None) -> Iterator[str]:
    """The model was told of each edit that was made, and of no other."""
    if told is None:
        return
    edits = sum(result in _TOLD_EDITS for result in told)
    tripping = session.status == "rolled_back" and session.mutation_count - edits == 1
    if edits != session.mutation_count and not tripping:
        yield f"session {session.id} told of {edits} edits and made {session.mutation_count}"
