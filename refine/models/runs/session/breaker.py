"""The circuit breaker: a session that removes more than allowed is undone entirely."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from refine import settings
from refine.models.audit import AuditLog
from refine.models.ledger.history import effect_tokens, records_since_first
from refine.models.ledger.image import Change, Image, changes_in, images_in
from refine.models.ledger.memory import AgentMemory
from refine.models.runs.session.session import (
    LOOP_EDITS,
    ROLLING_WINDOW,
    RefinementSession,
    Reversal,
)
from refine.rules.quantities import abbreviated, in_days, share_in_percent


def roll_back(session: RefinementSession, attempted_tokens: int, at: datetime) -> None:
    """Undo the loop's edits field by field and end the session; changes by others stay."""
    is_edit = AuditLog.session_id == session.id, AuditLog.action.in_(LOOP_EDITS)
    records = records_since_first(session.agent_id, *is_edit)
    session.removed_tokens = session.details_lost = 0
    session.saved_tokens += sum(
        effect_tokens(record.data) for record in records if _is_loop_edit(session, record)
    )
    reason = _reason(session, attempted_tokens)
    reversal = Reversal(
        _reversed(session, records, at),
        {"attempted_tokens": attempted_tokens},
        f"My refinement session was rolled back entirely: it {reason}. Its operations were: "
        f"{_operations(session, records)}. All of it was undone; every memory is as it was before "
        f"them. {_whose_limit(session)}",
    )
    session.finish("rolled_back", reason, reversal=reversal, at=at)


def _is_loop_edit(session: RefinementSession, record: AuditLog) -> bool:
    return record.session_id == session.id and record.action in LOOP_EDITS


def _reversed(
    session: RefinementSession, records: Sequence[AuditLog], at: datetime
) -> list[Change]:
    """Fields that somebody else changed after an edit stay as they left them."""
    changes = [
        (_is_loop_edit(session, record), change)
        for record in records
        for change in changes_in(record.data, record.sealed)
    ]
    edited = {change.memory_id for is_ours, change in changes if is_ours}
    memories = AgentMemory.lock_rows(session.agent, edited)
    present: dict[int, Image] = {id_: memory.image() for id_, memory in memories.items()}
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


def _operations(session: RefinementSession, records: Sequence[AuditLog]) -> str:
    operations = []
    for edit in reversed(records):
        if _is_loop_edit(session, edit):
            ids = [f"#{each['id']}" for each in images_in(edit.data) if each["before"] is not None]
            operations.append(f"{edit.data['operation']} {abbreviated(ids, ', ')}")
    return abbreviated(operations, "; ")


def _reason(session: RefinementSession, attempted_tokens: int) -> str:
    before, limit = session.mass_before or 0, session.removable_tokens
    whose = ", by REFINE_ROLLING_FLOOR" if session.is_limited_by_floor else ""
    return (
        f"tried to remove {attempted_tokens} of {before} tokens "
        f"({share_in_percent(attempted_tokens, before)}); "
        f"the limit was {limit} ({share_in_percent(limit, before)}){whose}"
    )


def _whose_limit(session: RefinementSession) -> str:
    if session.is_limited_by_floor:
        floor = f"REFINE_ROLLING_FLOOR {settings.current().rolling_floor.normalize():f}"
        return (
            f"The limit was an operator's setting, {floor} for all sessions of "
            f"{in_days(ROLLING_WINDOW)}; my refinement_threshold would allow more."
        )
    return "The limit was my refinement_threshold, which I can change with self_authoring."
