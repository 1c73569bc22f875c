"""The replay of an agent's records, backwards: an undo returns memories by it.

Each record must find every memory in the state in which the record left it, and returns it to the
state that the record found. A memory in another state is blocked: a later record is in the way, or
the memory was changed outside the application.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import undefer

from refine.extensions import db
from refine.models import Agent, AgentMemory, AuditLog, RefinementSession
from refine.models.ledger import Change, Image, changes_in, state_of

# Saved memories stay, whatever is undone around them.
_SAVES = ("memory_saved", "memory_imported")
# So does a promotion, though earlier changes of the promoted entry are undone.
_PROMOTION = "memory_promoted"


@dataclass(frozen=True)
class Obstacle:
    """A later record that changed a memory of the session."""

    memory_id: int
    record_id: int
    sequence: int
    action: str
    at: datetime
    session_id: object

    @classmethod
    def of(cls, memory_id: int, record: AuditLog) -> "Obstacle":
        """Return the record as an obstacle to taking back what happened before to this memory."""
        return cls(
            memory_id,
            record.id,
            record.sequence,
            record.action,
            record.created_at,
            record.session_id,
        )

    def __str__(self) -> str:
        return f"record {self.sequence} ({self.action}, {self.at:%Y-%m-%d %H:%M} UTC)"


def records_since(session: RefinementSession) -> Sequence[AuditLog]:
    """The agent's records of memories since the session's first one, newest first."""
    holds_images = AuditLog.data["image_version"].as_string().is_not(None)
    first = select(func.min(AuditLog.sequence)).where(
        AuditLog.session_id == session.id, AuditLog.agent_id == session.agent_id, holds_images
    )
    return db.session.scalars(
        select(AuditLog)
        .options(undefer(AuditLog.sealed_text))
        .where(
            AuditLog.agent_id == session.agent_id,
            AuditLog.sequence >= first.scalar_subquery(),
            holds_images,
        )
        .order_by(AuditLog.sequence.desc())
    ).all()


def without_undos(records: Sequence[AuditLog]) -> list[AuditLog]:
    """The records without undos and what these took back, which cancel out."""
    taken_back: set[int] = set()
    found = []
    for record in records:
        if record.data.get("operation") == "undo":
            taken_back.update(record.data["undone_records"])
        elif record.sequence not in taken_back:
            found.append(record)
    return found


@dataclass
class _MemoryState:
    """One memory during the replay: its present image, and the image reached so far."""

    present: Image
    target: Image
    oldest_sequence: int = 0
    is_blocked: bool = False
    was_promoted: bool = False

    def matches(self, left: Image) -> bool:
        """Whether it has reached the state in which a record left it, apart from a promotion."""
        type_then = {"memory_type": left["memory_type"]} if self.was_promoted else {}
        return state_of({**self.target, **type_then}) == state_of(left)


class Replay:
    """The replay of one agent's records, newest first; it changes no memory.

    ``records`` are those that it takes back.
    """

    def __init__(self, agent: Agent, records: Sequence[AuditLog], at: datetime) -> None:
        """Lock the memories of the records, and take back each, unless its memory is blocked."""
        self._steps = [
            (record, change)
            for record in records
            if record.action not in _SAVES
            for change in changes_in(record.data, record.sealed)
            if not _is_journal_note(change)
        ]
        self.records = {record for record, _ in self._steps if record.action != _PROMOTION}
        touched = {change.memory_id for _, change in self._steps}
        self._states = {
            id_: _MemoryState(memory.image(), memory.image())
            for id_, memory in AgentMemory.lock_rows(agent, touched).items()
        }
        self._take_back(at)

    @property
    def blocked(self) -> set[int]:
        """The memories that are not as a record left them."""
        return {id_ for id_, state in self._states.items() if state.is_blocked}

    def changes(self) -> list[Change]:
        """Return the changes that bring the memories to the images reached."""
        return [
            Change(id_, state.present, state.target)
            for id_, state in sorted(self._states.items())
            if state.target != state.present
        ]

    def in_the_way(self, since: Sequence[AuditLog]) -> tuple[list[Obstacle], set[int]]:
        """Return which records ``since`` are in the way, and the memories changed without one."""
        obstacles = [
            Obstacle.of(id_, record)
            for record in reversed(since)
            if record not in self.records
            for id_ in (memory["id"] for memory in record.data["memories"])
            if id_ in self.blocked and record.sequence > self._states[id_].oldest_sequence
        ]
        explained = {obstacle.memory_id for obstacle in obstacles}
        return obstacles, self.blocked - explained

    def _take_back(self, at: datetime) -> None:
        for record, change in self._steps:
            state = self._states[change.memory_id]
            if record.action == _PROMOTION:
                state.was_promoted = True
                continue
            state.oldest_sequence = record.sequence
            state.is_blocked = state.is_blocked or not state.matches(change.after)
            if not state.is_blocked:
                state.target = change.reversed_onto(state.target, at)


def _is_journal_note(change: Change) -> bool:
    return change.before is None and change.after["memory_type"] == "journal"
