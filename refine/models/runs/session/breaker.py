"""The circuit breaker: a session that removes more than allowed is undone entirely."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, select

from refine import clock
from refine.extensions import db
from refine.models.audit import AuditLog
from refine.models.ledger import AgentMemory, Change, Image, changes_in, images_in
from refine.models.runs.session.notes import rollback_note, rollback_reason
from refine.models.runs.session.session import RefinementSession, Reversal
from refine.rules.quantities import abbreviated
from refine.rules.retention import trips_breaker

# The edits that the cap counts, and all edits of the loop. Duplicates are removed before the loop,
# and stay removed after a rollback.
MUTATIONS = (
    "memory_refinement_consolidate",
    "memory_refinement_update",
    "memory_refinement_delete",
)
LOOP_EDITS = (*MUTATIONS, "memory_refinement_protect")


def trips(session: RefinementSession, removed: int) -> bool:
    """Tell whether the session would have ``removed`` more tokens than allowed."""
    return trips_breaker(
        removed, removable=session.removable_tokens, memories_before=session.memories_before
    )


def check(session: RefinementSession, removed: int, at: datetime | None = None) -> bool:
    """Roll the session back if it has ``removed`` more tokens than allowed; tell whether it did."""
    is_too_much = trips(session, removed)
    if is_too_much:
        roll_back(session, removed, at or clock.now())
    else:
        session.removed_tokens = max(0, removed)
    return is_too_much


def roll_back(session: RefinementSession, attempted_tokens: int, at: datetime) -> None:
    """Undo every edit of the loop, newest first, and end the session ``rolled_back``.

    Field by field: changes that an admin made meanwhile stay, and duplicates stay removed.
    """
    records = _records_since_first_edit(session)
    edits = [record for record in records if _is_loop_edit(session, record)]
    session.removed_tokens = session.details_lost = 0
    reason = rollback_reason(session, attempted_tokens)
    reversal = Reversal(
        _reversed(session, records, at),
        {"attempted_tokens": attempted_tokens},
        rollback_note(session, reason, _operations(edits)),
    )
    session.finish("rolled_back", reason, reversal=reversal, at=at)


def _records_since_first_edit(session: RefinementSession) -> Sequence[AuditLog]:
    """All records of the agent since the loop's first edit, newest first by sequence."""
    first_edit = select(func.min(AuditLog.sequence)).where(
        AuditLog.session_id == session.id, AuditLog.action.in_(LOOP_EDITS)
    )
    return db.session.scalars(
        select(AuditLog)
        .where(
            AuditLog.agent_id == session.agent.id,
            AuditLog.sequence >= first_edit.scalar_subquery(),
        )
        .order_by(AuditLog.sequence.desc())
    ).all()


def _is_loop_edit(session: RefinementSession, record: AuditLog) -> bool:
    return record.session_id == session.id and record.action in LOOP_EDITS


def _reversed(
    session: RefinementSession, records: Sequence[AuditLog], at: datetime
) -> list[Change]:
    """The changes that bring memories back to where the edits found them.

    A field that somebody else changed after an edit stays as they left it.
    """
    changes = [
        (_is_loop_edit(session, record), change)
        for record in records
        for change in changes_in(record.data, record.sealed)
    ]
    edited = {change.memory_id for is_ours, change in changes if is_ours}
    present: dict[int, Image] = {
        id_: memory.image() for id_, memory in AgentMemory.lock_rows(session.agent, edited).items()
    }
    target = dict(present)
    changed_by_others: dict[int, set[str]] = defaultdict(set)
    for is_ours, change in changes:
        id_ = change.memory_id
        if is_ours:
            target[id_] = change.reversed_onto(target[id_], at, keep=changed_by_others[id_])
        else:
            changed_by_others[id_].update(change.altered())
    return [
        Change(id_, present[id_], target[id_])
        for id_ in sorted(target)
        if target[id_] != present[id_]
    ]


def _operations(edits: Sequence[AuditLog]) -> str:
    """What the session did, oldest first: "consolidate #1, #2; delete #3"."""
    operations = [
        f"{edit.data['operation']} {abbreviated([f'#{id_}' for id_ in _touched(edit)], ', ')}"
        for edit in reversed(edits)
    ]
    return abbreviated(operations, "; ")


def _touched(edit: AuditLog) -> list[int]:
    return [each["id"] for each in images_in(edit.data) if each["before"] is not None]
