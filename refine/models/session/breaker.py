"""The circuit breaker, and the whole way back."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, select

from refine import clock
from refine.extensions import db
from refine.models.audit import EDITS, AuditLog
from refine.models.image import Change, Image, changes_in
from refine.models.memory import AgentMemory
from refine.models.session.ending import Ending
from refine.models.session.entry import SessionEntry

# Duplicates are removed before the loop and stay removed when it is rolled back.
_LOOP_EDITS = tuple(action for action in EDITS if action != "memory_refinement_dedup")


# How many operations, and memories of one, the agent is told of after a rollback.
_MOST_TOLD = 20


class Breaker(Ending):
    """Undoes a whole session that removes more than it may."""

    def trip_breaker(self, at: datetime | None = None) -> bool:
        """Measure what the session removed; roll all of it back if that is more than it may.

        Tells whether it did. An empty snapshot has no breaker.
        """
        db.session.flush()
        counting = select(func.coalesce(func.sum(SessionEntry.counting_tokens), 0)).where(
            SessionEntry.session_id == self.id
        )
        removed = int(self.mass_before or 0) - int(db.session.scalar(counting) or 0)
        if not self.memories_before or removed <= self.removable_tokens:
            self.removed_tokens = max(0, removed)
            return False
        self.roll_back(removed, at or clock.now())
        return True

    def roll_back(self, attempted_tokens: int, at: datetime) -> None:
        """Undo every edit of the loop, newest first, and end the session ``rolled_back``.

        Field by field: what an admin did meanwhile stays, and so does the removal of duplicates.
        """
        records = self._records_of_the_loop()
        edits = [record for record in records if self._is_loop_edit(record)]
        for entry in self.entries().values():
            entry.counting_tokens = 0 if entry.is_merge_result else entry.ceiling_tokens
            entry.merged_into_id = None
        self.removed_tokens = 0
        reason = (
            f"it would have removed {attempted_tokens} of {self.mass_before} tokens; "
            f"at most {self.removable_tokens} may go"
        )
        self.finish(
            "rolled_back",
            reason,
            changes=self._reversal(records, at),
            data={"attempted_tokens": attempted_tokens},
            journal=_undone(edits, reason),
            at=at,
        )

    def _records_of_the_loop(self) -> Sequence[AuditLog]:
        """All records of the agent since the loop's first edit, newest first by sequence."""
        first_edit = select(func.min(AuditLog.sequence)).where(
            AuditLog.session_id == self.id, AuditLog.action.in_(_LOOP_EDITS)
        )
        return db.session.scalars(
            select(AuditLog)
            .where(
                AuditLog.agent_id == self.agent.id,
                AuditLog.sequence >= first_edit.scalar_subquery(),
            )
            .order_by(AuditLog.sequence.desc())
        ).all()

    def _is_loop_edit(self, record: AuditLog) -> bool:
        return record.session_id == self.id and record.action in _LOOP_EDITS

    def _reversal(self, records: Sequence[AuditLog], at: datetime) -> list[Change]:
        """The changes that take memories from where they stand to where the edits found them.

        A field that somebody else changed after an edit stays as they left it.
        """
        changes = [
            (self._is_loop_edit(record), change)
            for record in records
            for change in changes_in(record.data, record.sealed)
        ]
        edited = {change.memory_id for is_ours, change in changes if is_ours}
        present: dict[int, Image] = {
            id_: memory.image() for id_, memory in AgentMemory.locked(self.agent, edited).items()
        }
        target = dict(present)
        others: dict[int, set[str]] = defaultdict(set)
        for is_ours, change in changes:
            id_ = change.memory_id
            if is_ours:
                target[id_] = change.reversed_onto(target[id_], at, but=others[id_])
            else:
                others[id_].update(change.altered())
        return [
            Change(id_, present[id_], target[id_])
            for id_ in sorted(target)
            if target[id_] != present[id_]
        ]


def _undone(edits: Sequence[AuditLog], reason: str) -> str:
    """What the agent is told of a rollback: what would have gone, and that nothing did."""
    would = [
        f"{edit.data['operation']} {first_of([f'#{id_}' for id_ in _touched(edit)], ', ')}"
        for edit in reversed(edits)
    ]
    return (
        f"My refinement session was undone as a whole: {reason}. It would have done: "
        f"{first_of(would, '; ')}. All of it was undone; every memory stands as it did before."
    )


def first_of(items: Sequence[str], separator: str) -> str:
    """Return the first 20 of them, and how many more there are: a memory must hold what is told."""
    more = len(items) - _MOST_TOLD
    return separator.join([*items[:_MOST_TOLD], *([f"and {more} more"] if more > 0 else [])])


def _touched(edit: AuditLog) -> list[int]:
    return [memory["id"] for memory in edit.data["memories"] if memory["before"] is not None]
