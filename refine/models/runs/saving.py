"""Verbs of a memory task that its caller holds (``MemoryTask.held``): promote and save."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Select

from refine import clock
from refine.errors import InvalidValue
from refine.extensions import db
from refine.models.ledger.image import Change
from refine.models.ledger.memory import AgentMemory, change_memories, content_hash
from refine.models.runs.task import MAX_KEPT, MemoryTask
from refine.rules.content import known_tags, memory_content


def journal_entries(task: MemoryTask) -> Select[AgentMemory]:
    """Select the week's journal before the task began, without Refine's notes."""
    began = task.started_at or task.created_at
    return task.agent.ledger.journal(began).where(
        AgentMemory.recorded_at <= began, ~AgentMemory.is_note()
    )


def promote(
    task: MemoryTask, ids: Sequence[int], *, at: datetime | None = None
) -> tuple[list[int], dict[int, int]]:
    """Promote entries; return their ids, and repeated core memories by entry id. InvalidValue."""
    at, chosen = at or clock.now(), _entries(task, ids)
    cores = task.agent.ledger.select_core_with({entry.content_hash for entry in chosen})
    kept = list(db.session.scalars(cores.order_by(AgentMemory.id)))
    promoted: list[AgentMemory] = []
    repeating: dict[int, int] = {}
    for entry in chosen:
        same = (
            memory.id
            for memory in (*kept, *promoted)
            if memory.content_hash == entry.content_hash and set(memory.tags) >= set(entry.tags)
        )
        if (repeated := next(same, None)) is not None:
            repeating[entry.id] = repeated
        else:
            promoted.append(entry)
    _count_or_refuse(task, len(promoted))
    for entry in promoted:
        before = entry.image()
        change_memories(
            "memory_promoted",
            [Change(entry.id, before, {**before, "memory_type": "core"})],
            agent=task.agent,
            subject=("AgentMemory", entry.id),
            data=_task_data(task, "promote"),
            at=at,
        )
    return [entry.id for entry in promoted], repeating


def save(
    task: MemoryTask, content: object, tags: object = (), *, at: datetime | None = None
) -> tuple[AgentMemory, bool]:
    """Save a journal memory; return it, and whether an exact duplicate with its tags existed."""
    at = at or clock.now()
    hashed = content_hash(memory_content(content), task.data_key())
    ledger, tags = task.agent.ledger, known_tags(tags)
    in_core = ledger.select_core_with([hashed], tags)
    in_journal = ledger.journal(at).where(
        AgentMemory.content_hash == hashed, AgentMemory.tags.contains(tags)
    )
    for same in (in_core, in_journal):
        if (existing := db.session.scalar(same.limit(1))) is not None:
            return existing, True
    _count_or_refuse(task, 1)
    return task.agent.ledger.remember(
        content, "journal", tags, at, data=_task_data(task, "extract")
    )


def _entries(task: MemoryTask, ids: Sequence[int]) -> list[AgentMemory]:
    AgentMemory.lock_rows(task.agent, ids)
    found = db.session.scalars(journal_entries(task).where(AgentMemory.id.in_(ids)))
    by_id = {entry.id: entry for entry in found}
    if unknown := [id_ for id_ in ids if id_ not in by_id]:
        raise InvalidValue(
            f"{_named(unknown)} not found: only the journal entries that you were shown can "
            "be promoted; nothing was done"
        )
    if locked := [id_ for id_ in ids if by_id[id_].constitutional]:
        raise InvalidValue(
            f"Cannot promote constitutional {_named(locked).lower()}; nothing was done"
        )
    return [by_id[id_] for id_ in ids]


def _count_or_refuse(task: MemoryTask, more: int) -> None:
    limit = MAX_KEPT[task.kind]
    if task.memories_kept + more > limit:
        raise InvalidValue(
            f"At most {limit} memories in one {task.kind}; "
            f"{limit - task.memories_kept} are left, and nothing was done"
        )
    task.memories_kept += more


def _task_data(task: MemoryTask, operation: str) -> dict[str, str]:
    return {"operation": operation, "task_id": str(task.id)}


def _named(ids: Sequence[int]) -> str:
    if len(ids) == 1:
        return f"Memory #{ids[0]}"
    return f"Memories {', '.join(f'#{id_}' for id_ in ids)}"
