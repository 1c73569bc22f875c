"""What holds of an agent whatever broke, checked on the database alone; shared by all fault tests.

Take a ``Before`` of a sound agent, let things break, and ask for the ``breaches``: sentences with
ids and figures, never content. Runs may be live meanwhile; what must hold once nobody works any
more (``sweep`` ends what was lost) is asked for with ``at_rest``.
"""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, text
from sqlalchemy.orm import undefer, undefer_group

from refine.errors import RefineError
from refine.extensions import db
from refine.models import AccessGrant, Agent, AgentMemory, AuditLog, MemoryTask, RefinementSession
from refine.models.ledger.image import CONTENT_KEY, Change, Image, changes_in, images_in, mass_of
from refine.models.runs.run import Run
from refine.models.runs.session.entry import SessionEntry
from refine.models.runs.session.session import (
    CONSENTED_ENDS,
    END_ACTION,
    LOOP_EDITS,
    MAX_MUTATIONS,
    MUTATIONS,
    closing_note,
)
from tests import sql
from tests.chains import verify_agent
from tests.factories import EDITS

KINDS: tuple[type[Run], ...] = (RefinementSession, MemoryTask, AccessGrant)
DEDUPLICATED = "memory_refinement_dedup"
_TASK_ENDS = ("memory_reflection_ended", "memory_extraction_ended")
_ANSWERS = tuple(f"memory_access_{each}" for each in ("granted", "declined", "failed", "lapsed"))
_ADVISORY_LOCKS = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_GRANT_ENDS = ("memory_access_ended", "memory_access_revoked")


@dataclass(frozen=True)
class Before:
    """An agent's memories, and how far its chain went, before anything broke."""

    agent_id: int
    sequence: int
    images: dict[int, Image]

    @classmethod
    def of(cls, agent: Agent) -> "Before":
        """Of the agent as it is committed."""
        newest = select(func.max(AuditLog.sequence)).where(AuditLog.agent_id == agent.id)
        return cls(agent.id, db.session.scalar(newest) or 0, _images(agent))


def breaches(before: Before, *, at_rest: bool = True) -> list[str]:
    """Return what does not hold of the agent now; an empty list if all does.

    Ends the transaction that is open.
    """
    db.session.rollback()
    agent = db.session.get_one(Agent, before.agent_id)
    problem = verify_agent(agent).problem
    found = [f"verify: {problem}"] if problem is not None else []
    try:
        found += _lost(before, agent) if agent.is_erased else _of(before, agent, at_rest)
    except RefineError as fault:  # what was altered cannot be read
        found.append(type(fault).__name__)
    db.session.rollback()
    return found


def sweep(agent_id: int) -> int:
    """End the agent's runs whose worker is gone, as the clock would; return how many it ended.

    All of its workers count as gone: their heartbeats are set back.
    """
    db.session.rollback()
    ended = 0
    for kind in KINDS:
        sql.run(
            f"UPDATE {kind.__tablename__} SET heartbeat_at = heartbeat_at - interval '1 hour' "  # noqa: S608
            f"WHERE agent_id = {agent_id} AND lease_token IS NOT NULL"
        )
        for run in kind.held_of(db.session.get_one(Agent, agent_id)):
            ended += run.end_if_lost()
        db.session.commit()
    return ended


def left_open(patience_seconds: float = 20) -> list[str]:
    """Return what is still held in the database by anybody but who asks: transactions, locks.

    The server may take a moment to notice that a client is gone.
    """
    deadline = time.monotonic() + patience_seconds
    while (found := _held()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def _held() -> list[str]:
    db.session.commit()
    counts = {
        "transactions are open": sql.open_transactions(),
        "advisory locks are held": db.session.scalar(text(_ADVISORY_LOCKS)),
    }
    db.session.commit()
    return [f"{count} {what}" for what, count in counts.items() if count]


def _of(before: Before, agent: Agent, at_rest: bool) -> Iterator[str]:
    records = _records(agent)
    sessions = _all(RefinementSession, agent)
    yield from _replayed(before, agent, records)
    yield from _locked_ones(records)
    live = [session for session in sessions if session.is_live]
    if len(live) > 1:
        yield f"{len(live)} sessions are live"
    for session in sessions:
        mine = [record for record in records if record.session_id == session.id]
        for said in (*_session(session, mine), *_told(session, mine)):
            yield f"session {session.id} ({session.status}): {said}"
    for task in _all(MemoryTask, agent):
        for said in _task(task, records):
            yield f"{task.kind} {task.id} ({task.status}): {said}"
    for grant in _all(AccessGrant, agent):
        for said in _grant(grant, records):
            yield f"access {grant.id} ({grant.status}): {said}"
    for run in (run for kind in KINDS for run in kind.held_of(agent) if at_rest):
        yield f"{type(run).__name__} {run.id}: a worker still holds it"


# -- memories and records --------------------------------------------------------------------------


def _replayed(before: Before, agent: Agent, records: Sequence[AuditLog]) -> Iterator[str]:
    """The records since then, in their order, lead from what was to what is."""
    reached = dict(before.images)
    for record in records:
        if record.sequence <= before.sequence:
            continue
        for change in changes_in(record.data, record.sealed):
            if reached.get(change.memory_id) != change.before:
                yield f"record {record.sequence} did not find memory {change.memory_id} so"
            reached[change.memory_id] = change.after
    present = _images(agent)
    for id_ in sorted(reached.keys() | present.keys()):
        if reached.get(id_) != present.get(id_):
            yield f"memory {id_} is not as the records say"


def _locked_ones(records: Sequence[AuditLog]) -> Iterator[str]:
    """No session changes a constitutional memory, though one may take over tags of a copy."""
    for record in records:
        for change in _changes(record) if record.action in EDITS else ():
            altered = set(change.altered())
            if record.action == DEDUPLICATED:
                altered -= {"tags"}
            if (change.before or {}).get("constitutional") and altered:
                yield f"record {record.sequence} changed constitutional memory {change.memory_id}"


def _lost(before: Before, agent: Agent) -> Iterator[str]:
    """Of an erased agent: its rows stay."""
    ids = db.session.scalars(select(AgentMemory.id).where(AgentMemory.agent_id == agent.id))
    for id_ in sorted(before.images.keys() - set(ids)):
        yield f"memory {id_} is gone"


# -- sessions --------------------------------------------------------------------------------------


def _session(session: RefinementSession, records: Sequence[AuditLog]) -> Iterator[str]:
    yield from _ended_once(session, records)
    edits = [record for record in records if record.action in LOOP_EDITS]
    mutations = sum(record.action in MUTATIONS for record in edits)
    if not mutations == session.mutation_count <= MAX_MUTATIONS:
        yield f"counts {session.mutation_count} mutations, and has {mutations} records of some"
    if (counted := _counted(edits)) != session.edits:
        yield f"counts {session.edits}, and its records {counted}"
    copies = sum(_discards(record) for record in records if record.action == DEDUPLICATED)
    if copies != session.duplicates_removed:
        yield f"counts {session.duplicates_removed} duplicates, and its records {copies}"
    yield from _retained(session, edits)


def _ended_once(session: RefinementSession, records: Sequence[AuditLog]) -> Iterator[str]:
    actions = Counter(record.action for record in records)
    if actions["refinement_queued"] != 1:
        yield f"was queued {actions['refinement_queued']} times"
    ends = [each for each in records if "status" in each.data and "removable_tokens" in each.data]
    expected = [] if session.is_live else [END_ACTION[session.status]]
    if [end.action for end in ends] != expected:
        yield f"has the ends {[end.action for end in ends]}"
    for end in ends:
        if end.data != {**end.data, **json.loads(json.dumps(session.measured()))}:
            yield "was measured otherwise than its end records"
        if any(each.sequence > end.sequence for each in records if each.action in EDITS):
            yield "was edited in after its end"


def _retained(session: RefinementSession, edits: Sequence[AuditLog]) -> Iterator[str]:
    """It never took more than the breaker allows, however that is counted."""
    entries = select(func.sum(SessionEntry.counting_tokens)).where(
        SessionEntry.session_id == session.id
    )
    counting = db.session.scalar(entries)
    if session.is_live and (session.mass_before or 0) - (counting or 0) != session.removed_tokens:
        yield f"counts {session.removed_tokens} removed tokens, and its entries otherwise"
    if not session.is_live and counting is not None:
        yield "still has entries"
    taken = sum(mass_of(c.before) - mass_of(c.after) for each in edits for c in _changes(each))
    if session.status != "rolled_back" and taken > session.removable_tokens:
        yield f"took {taken} tokens, and may take {session.removable_tokens}"


def _told(session: RefinementSession, records: Sequence[AuditLog]) -> Iterator[str]:
    """The agent is told of its end, and of each undo, once, and truly."""
    about = [record for record in records if record.data.get("operation") == "undo"]
    is_rolled_back = session.status == "rolled_back"
    note = None if session.is_live else closing_note(session, "…" if is_rolled_back else None)
    notes = _notes(session)
    if len(notes) != len(about) + (note is not None):
        yield f"has {len(notes)} notes to the agent, after {len(about)} undos"
    elif is_rolled_back:
        if not any("rolled back entirely" in each for each in notes):
            yield "did not tell that it was rolled back"
    elif note is not None and note not in notes:
        yield "did not tell the agent how it ended"
    if session.status in CONSENTED_ENDS and session.summary_line() not in (session.summary or ""):
        yield "does not summarize what it did"


def _notes(session: RefinementSession) -> list[str]:
    journal = select(AgentMemory).where(
        AgentMemory.session_id == session.id, AgentMemory.memory_type == "journal"
    )
    return [note.content for note in db.session.scalars(journal)]


def _counted(edits: Sequence[AuditLog]) -> dict[str, int]:
    """What the records of a session's edits amount to, as its ``stats`` count."""
    by_operation: dict[str, int] = defaultdict(int)
    for edit in edits:
        sources = sum(change["before"] is not None for change in images_in(edit.data))
        by_operation[edit.data["operation"]] += sources
    named = {"consolidate": "consolidated", "update": "updated", "delete": "deleted"}
    named["protect"] = "protected"
    return {stat: by_operation[operation] for operation, stat in named.items()}


def _discards(record: AuditLog) -> int:
    return sum(
        (image["before"] or {}).get("discarded_at") is None and bool(image["after"]["discarded_at"])
        for image in images_in(record.data)
    )


# -- tasks and access ------------------------------------------------------------------------------


def _task(task: MemoryTask, records: Sequence[AuditLog]) -> Iterator[str]:
    about = [record for record in records if record.auditable_id == str(task.id)]
    ends = [record for record in about if record.action in _TASK_ENDS]
    if len(ends) != (not task.is_live):
        yield f"has {len(ends)} ends on record"
    kept = [record for record in records if record.data.get("task_id") == str(task.id)]
    if len(kept) != task.memories_kept:
        yield f"counts {task.memories_kept} memories, and has {len(kept)} records of some"
    if (task.sealed_conversation is not None) != (task.kind == "extraction" and task.is_live):
        yield "has a conversation only until it ends"
    if task.sealed_conversation is not None and not task.messages():
        yield "its conversation is empty"


def _grant(grant: AccessGrant, records: Sequence[AuditLog]) -> Iterator[str]:
    about = Counter(each.action for each in records if each.auditable_id == str(grant.id))
    if about["memory_access_requested"] != 1:
        yield f"was requested {about['memory_access_requested']} times"
    answers = [action for action in _ANSWERS for _ in range(about[action])]
    granted = grant.status in ("granted", "ended")
    expected = {True: ["memory_access_granted"]}.get(granted, [f"memory_access_{grant.status}"])
    if answers != ([] if grant.status == "requested" else expected):
        yield f"has the answers {answers}"
    if sum(about[action] for action in _GRANT_ENDS) != (grant.status == "ended"):
        yield "was ended otherwise than recorded"


def _all(kind: type[Any], agent: Agent) -> Sequence[Any]:
    mine = select(kind).where(kind.agent_id == agent.id).order_by(kind.created_at, kind.id)
    return db.session.scalars(
        mine.options(undefer("*")).execution_options(populate_existing=True)
    ).all()


def _records(agent: Agent) -> Sequence[AuditLog]:
    mine = select(AuditLog).where(AuditLog.agent_id == agent.id).order_by(AuditLog.sequence)
    return db.session.scalars(mine.options(undefer_group("sealed"))).all()


def _images(agent: Agent) -> dict[int, Image]:
    mine = select(AgentMemory).where(AgentMemory.agent_id == agent.id)
    fresh = mine.execution_options(populate_existing=True)
    return {memory.id: as_recorded(memory.image()) for memory in db.session.scalars(fresh)}


def as_recorded(image: Image) -> Image:
    """A record holds no key."""
    return {field: value for field, value in image.items() if field != CONTENT_KEY}


def _changes(record: AuditLog) -> list[Change]:
    return changes_in(record.data, record.sealed)
