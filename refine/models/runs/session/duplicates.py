"""Exact duplicates, removed before the agent is asked."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby, islice

from sqlalchemy import func, select

from refine import clock
from refine.extensions import db
from refine.models.agent import Agent
from refine.models.audit import AuditLog
from refine.models.columns import in_names
from refine.models.ledger.image import Change, Image, changes_in, is_kept
from refine.models.ledger.memory import AgentMemory, MemoryEdit, change_in_turn, content_hash
from refine.models.runs.session.session import RefinementSession
from refine.rules.content import known_tags

# How many are removed in one transaction, for which other writers have to wait.
BATCH = 150


def remove_duplicates(session: RefinementSession, at: datetime | None = None) -> int:
    """Discard up to ``BATCH`` exact duplicates; locked ones stay, else the oldest with all tags."""
    at = at or clock.now()
    memories = AgentMemory.lock_rows(session.agent, _repeated_ids(session.agent_id))
    kept = [memory for memory in memories.values() if memory.is_kept_core]
    in_order = sorted(kept, key=lambda each: (each.content_hash, each.created_at, each.id))
    removals = list(islice(_removals(session, in_order, at), BATCH))
    if removals:
        change_in_turn(removals, agent=session.agent, locked=memories, at=at)
    session.duplicates_removed += len(removals)
    session.saved_tokens -= sum(each.mass_difference for edit in removals for each in edit.changes)
    return len(removals)


def _repeated_ids(agent_id: int) -> list[int]:
    locked = func.count().filter(AgentMemory.is_locked)
    repeated = (
        select(func.array_agg(AgentMemory.id))
        .where(AgentMemory.agent_id == agent_id, AgentMemory.is_kept_core)
        .group_by(AgentMemory.content_hash)
        .having(func.count() > func.greatest(locked, 1))
        .order_by(func.min(AgentMemory.id))
        .limit(BATCH)
    )
    ids: list[int] = []
    for texts, group in enumerate(db.session.scalars(repeated), start=1):
        ids += group
        if len(ids) - texts >= BATCH:
            break
    return ids


def _removals(
    session: RefinementSession, memories: Sequence[AgentMemory], at: datetime
) -> Iterator[MemoryEdit]:
    for _, same in groupby(memories, key=lambda memory: memory.content_hash):
        group = list(same)
        staying = [memory for memory in group if memory.edit_lock] or group[:1]
        kept: Image = staying[0].image()
        for duplicate in group:
            if duplicate not in staying:
                gone = duplicate.image()
                changes = [Change(duplicate.id, gone, {**gone, "discarded_at": clock.iso(at)})]
                tags = known_tags([*kept["tags"], *gone["tags"]])
                if tags != kept["tags"]:
                    before, kept = kept, {**kept, "tags": tags}
                    changes.append(Change(kept["id"], before, kept))
                about = {
                    "session_id": session.id,
                    "subject": duplicate,
                    "data": {"operation": "dedup", "duplicate_of": kept["id"]},
                }
                yield MemoryEdit("memory_refinement_dedup", changes, about)


def duplicates_losing_their_last_copy(
    agent: Agent, changes: Collection[Change], removals: Iterable[AuditLog]
) -> set[tuple[int, int]]:
    """Return the removed duplicates, as (sequence, memory id), without a copy after ``changes``."""
    key = agent.data_key()
    removed = {
        (record.sequence, change.memory_id): content_hash(change.before["content"], key)
        for record in removals
        for change in changes_in(record.data, record.sealed)
        if change.before is not None and not is_kept(change.after)
    }
    same = in_names(AgentMemory.content_hash, set(removed.values()))
    copies = {
        memory.id: memory.content_hash
        for memory in db.session.scalars(agent.ledger.core().where(same))
        if memory.is_genuine
    }
    images = {change.memory_id: change.after for change in changes}
    staying = {hashed for id_, hashed in copies.items() if id_ not in images} | {
        content_hash(image["content"], key) for image in images.values() if is_kept(image)
    }
    return {
        place
        for place, hashed in removed.items()
        if hashed in copies.values() and hashed not in staying
    }
