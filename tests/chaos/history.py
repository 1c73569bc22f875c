"""All that is known of a run afterwards, as plain values: what ``checker`` judges."""

import json
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import undefer

from refine.extensions import db
from refine.models import AccessGrant, Agent, AgentMemory, AuditLog, MemoryTask, RefinementSession
from refine.models.ledger.image import images_in
from tests.chaos.load import Promise
from tests.chaos.storm import Trouble
from tests.chaos.watcher import Sign

# What the record of an undo is called here.
UNDO = "undo"


class Session(NamedTuple):
    """A session's row; times are seconds since 1970, as the row tells them."""

    id: str
    agent_id: int
    status: str
    slot_at: float | None = None
    attempt: int = 1
    error_kind: str | None = None
    mutation_count: int = 0
    removed_tokens: int = 0
    removable_tokens: int = 0
    created_at: float = 0.0
    ended_at: float | None = None
    is_undone: bool = False


class Record(NamedTuple):
    """A record of an agent's chain; ``at`` is of the database's clock.

    ``early`` is how many seconds the clock of the process that wrote it was ahead of that.
    """

    agent_id: int
    sequence: int
    action: str
    session_id: str | None = None
    memory_ids: tuple[int, ...] = ()
    locked_ids: tuple[int, ...] = ()
    """Those that were constitutional before it."""
    at: float = 0.0
    early: float = 0.0


class Memory(NamedTuple):
    """A memory's row, opened."""

    id: int
    agent_id: int
    content: str
    is_constitutional: bool = False
    is_discarded: bool = False


class Waited(NamedTuple):
    """A memory task or a request for access: its status, and whether it waits for a retry."""

    id: str
    kind: str
    status: str
    is_retried_later: bool = False


class Asked(NamedTuple):
    """One request that the model was sent, and what it answered: a line of its log."""

    at: float
    worker: str
    run: str | None
    kind: str
    said: str
    calls: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    """Of each call: its id, the action, and the ids that it names."""
    seen: tuple[tuple[str, str, str], ...] = ()
    """Of each call before: its id, the type of its result, and the id in that."""


@dataclass
class History:
    """What happened; ``slots`` maps each account's agents to the slots that came in the run."""

    sessions: list[Session] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)
    waited: list[Waited] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)
    flags: dict[int, bool | None] = field(default_factory=dict)
    """Memories' constitutional flags as a user left them; None if no answer told."""
    saved_once: list[str] = field(default_factory=list)
    locked: dict[int, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    """Answers that called something a fault of Refine, and not unavailable."""
    slots: dict[int, list[float]] = field(default_factory=dict)
    over_budget: set[int] = field(default_factory=set)
    troubles: list[Trouble] = field(default_factory=list)
    signs: dict[uuid.UUID, Sign] = field(default_factory=dict)
    revived: set[uuid.UUID] = field(default_factory=set)
    crowded: set[int] = field(default_factory=set)
    clocks_apart_seconds: float = 0.0
    audit_exit_code: int = 0

    @cached_property
    def records_of(self) -> dict[str, list[Record]]:
        """The records of each session, in the order of their chain."""
        found: defaultdict[str, list[Record]] = defaultdict(list)
        for record in sorted(self.records, key=lambda each: each.sequence):
            if record.session_id is not None:
                found[record.session_id].append(record)
        return found

    @cached_property
    def asked_of(self) -> dict[str, list[Asked]]:
        """What the model was asked for each run, in order."""
        found: defaultdict[str, list[Asked]] = defaultdict(list)
        for asked in self.asked:
            if asked.run is not None:
                found[asked.run].append(asked)
        return found


# -- reading ----------------------------------------------------------------------------------


def read_sessions() -> list[Session]:
    """Return all sessions."""
    return [
        Session(
            id=str(row.id),
            agent_id=row.agent_id,
            status=row.status,
            slot_at=_seconds(row.slot_at),
            attempt=row.attempt,
            error_kind=row.error_kind,
            mutation_count=row.mutation_count,
            removed_tokens=row.removed_tokens,
            removable_tokens=row.removable_tokens,
            created_at=row.created_at.timestamp(),
            ended_at=_seconds(row.ended_at),
            is_undone=row.undone_at is not None,
        )
        for row in db.session.scalars(select(RefinementSession))
    ]


def read_records() -> list[Record]:
    """Return the records of all agents."""
    rows = db.session.scalars(
        select(AuditLog)
        .where(AuditLog.agent_id.is_not(None))
        .options(undefer(AuditLog.transaction_at))
        .order_by(AuditLog.agent_id, AuditLog.sequence)
    )
    return [_record(row) for row in rows]


def _record(row: AuditLog) -> Record:
    images = images_in(row.data)
    locked = [each["id"] for each in images if each["before"] and each["before"]["constitutional"]]
    return Record(
        agent_id=row.agent_id or 0,
        sequence=row.sequence,
        # an undo has the action of a rollback, though the session had ended before
        action=UNDO if "undone_records" in row.data else row.action,
        session_id=str(row.session_id) if row.session_id is not None else None,
        memory_ids=tuple(each["id"] for each in images),
        locked_ids=tuple(locked),
        at=row.transaction_at.timestamp(),
        early=(row.created_at - row.transaction_at).total_seconds(),
    )


def read_memories() -> list[Memory]:
    """Return all memories, opened with their agents' keys."""
    return [
        Memory(row.id, row.agent_id, row.content, row.constitutional, row.discarded_at is not None)
        for agent in db.session.scalars(select(Agent)).all()
        for row in db.session.scalars(select(AgentMemory).where(AgentMemory.agent_id == agent.id))
    ]


def read_waited() -> list[Waited]:
    """Return all memory tasks and requests for access."""
    tasks = [
        Waited(str(row.id), "conversation", row.status, row.status == "queued" and row.attempt > 1)
        for row in db.session.scalars(select(MemoryTask))
    ]
    grants = [
        Waited(str(row.id), "access", row.status) for row in db.session.scalars(select(AccessGrant))
    ]
    return [*tasks, *grants]


def read_log(log: Path) -> list[Asked]:
    """Return the lines of the model's log."""
    return [_asked(json.loads(line)) for line in log.read_text().splitlines()]


def _asked(line: dict[str, Any]) -> Asked:
    return Asked(
        at=line["at"],
        worker=line["worker"],
        run=line["run"],
        kind=line["kind"],
        said=line["said"],
        calls=tuple((id_, action, tuple(ids)) for id_, action, ids in line["calls"]),
        seen=tuple((id_, type_, about) for id_, type_, about in line["seen"]),
    )


def _seconds(at: Any) -> float | None:
    return at.timestamp() if at is not None else None
