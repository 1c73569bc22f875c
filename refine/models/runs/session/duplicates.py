"""Exact duplicates, removed before the agent is asked."""

from collections import defaultdict
from datetime import datetime

from refine import clock
from refine.extensions import db
from refine.models.ledger import AgentMemory, Change, change_memories
from refine.models.ledger.history import ids_imported_by_users
from refine.models.runs.session.session import RefinementSession
from refine.rules.content import known_tags


def remove_duplicates(session: RefinementSession, at: datetime | None = None) -> int:
    """Discard exact duplicates of kept core memories, one record each; return how many.

    The locked memories of a group stay, or the oldest if none is locked. The first one that stays
    takes over the tags of the discarded ones. Memories that users of the dashboard imported are
    left alone: removing one would tell them that the agent has the same memory.
    """
    at = at or clock.now()
    imported = ids_imported_by_users(session.agent_id)
    by_id = session.agent.ledger.core().order_by(None).order_by(AgentMemory.id)
    kept = db.session.scalars(
        by_id.with_for_update().execution_options(populate_existing=True)
    ).all()
    groups: dict[str, list[AgentMemory]] = defaultdict(list)
    for memory in sorted(kept, key=lambda memory: (memory.created_at, memory.id)):
        if memory.id not in imported:
            groups[memory.content_hash].append(memory)
    removed = 0
    for group in groups.values():
        staying = [memory for memory in group if memory.is_locked] or group[:1]
        for duplicate in group:
            if duplicate not in staying:
                _remove(session, duplicate, staying[0], at)
                removed += 1
    session.duplicates_removed += removed
    return removed


def _remove(
    session: RefinementSession, duplicate: AgentMemory, survivor: AgentMemory, at: datetime
) -> None:
    key = session.data_key()
    for memory in (duplicate, survivor):
        memory.require_genuine(key)
    gone, kept = duplicate.image(), survivor.image()
    tags = known_tags([*kept["tags"], *gone["tags"]])
    changes = [Change(duplicate.id, gone, {**gone, "discarded_at": clock.iso(at)})]
    if tags != kept["tags"]:
        changes.append(Change(survivor.id, kept, {**kept, "tags": tags}))
    change_memories(
        "memory_refinement_dedup",
        changes,
        agent=session.agent,
        session_id=session.id,
        subject=("AgentMemory", duplicate.id),
        data={"operation": "dedup", "duplicate_of": survivor.id},
        at=at,
    )
