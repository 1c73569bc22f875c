"""What an agent may do to its ledger in a session.

Every edit expects a session that its caller holds (``RefinementSession.held``), and writes change,
record and figures in the caller's transaction. A refusal (EditRefused) changes nothing.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime

from refine import clock
from refine.extensions import db
from refine.models.ledger import (
    AgentMemory,
    Change,
    change_memories,
)
from refine.models.runs.session import breaker
from refine.models.runs.session.entry import SessionEntry
from refine.models.runs.session.refusing import (
    EditRefused,
    editable_memories,
    entries_of_seen,
    kept_memories,
    refuse_copy,
    refuse_longer,
    refuse_loss,
    refuse_many,
    refuse_over_cap,
)
from refine.models.runs.session.session import RefinementSession
from refine.models.runs.session.survival import LedgerReading
from refine.rules.content import MAX_SUMMARY_CHARACTERS, bounded_text, known_tags, memory_content
from refine.rules.limits import longest_update
from refine.rules.retention import retained_tokens


def search(
    session: RefinementSession,
    query: str | None,
    after: datetime | None = None,
    before: datetime | None = None,
    *,
    limit: int,
    fits: Callable[[AgentMemory], bool] = lambda _memory: True,
) -> tuple[int, Sequence[AgentMemory]]:
    """Return how many kept core memories match, and the first ``limit`` by date, then id.

    Of these, only those are returned that ``fits`` lets pass; it is asked in their order.

    ``query`` matches anywhere, whatever the case; ``after`` is inclusive, ``before`` exclusive. The
    returned memories count as shown.
    """
    matching = session.agent.ledger.core()
    if after is not None:
        matching = matching.where(AgentMemory.created_at >= after)
    if before is not None:
        matching = matching.where(AgentMemory.created_at < before)
    wanted = (query or "").casefold()
    found = [
        memory for memory in db.session.scalars(matching) if wanted in memory.content.casefold()
    ]
    shown = [memory for memory in found[:limit] if fits(memory)]
    SessionEntry.show(session.id, shown)
    return len(found), shown


def consolidate(
    session: RefinementSession,
    ids: Collection[int],
    content: str,
    at: datetime | None = None,
    reading: LedgerReading | None = None,
) -> AgentMemory:
    """Merge two to eight memories into a new one, dated as the earliest, with all their tags.

    The sources are discarded. May trip the breaker. ``reading`` spares reading the ledger again.
    """
    at = at or clock.now()
    if len(set(ids)) < 2:
        raise EditRefused("consolidate requires at least 2 memory IDs")
    refuse_over_cap(session)
    content = memory_content(content)
    sources, entries = editable_memories(session, ids, "consolidate")
    refuse_many(sources)
    refuse_copy(session, content, except_for=ids)
    refuse_longer(
        content, sum(source.token_estimate for source in sources), "A merge of these memories"
    )
    refuse_loss(session, sources, content, reading)
    merged = _add_merged(session, sources, content, at)
    changes = [*_discards(sources, at), merged]
    _edit(session, "consolidate", changes, merged.memory_id, at, sources, reading)
    ceiling = sum(entry.counting_tokens for entry in entries)
    for entry in entries:
        entry.counting_tokens = 0
    result = db.session.get_one(AgentMemory, merged.memory_id)
    added = _add_merge_entry(session, result, ceiling)
    _count_and_check(session, "consolidated", len(sources), ceiling - added.counting_tokens, at)
    return result


def update(
    session: RefinementSession,
    memory_id: int,
    content: str,
    at: datetime | None = None,
    reading: LedgerReading | None = None,
) -> AgentMemory:
    """Tighten the wording of one memory. May trip the breaker. ``reading``: see ``consolidate``."""
    at = at or clock.now()
    refuse_over_cap(session)
    content = memory_content(content)
    (memory,), (entry,) = editable_memories(session, [memory_id], "update")
    if memory.content == content:
        raise EditRefused(f"Memory #{memory_id} already has this content; nothing to update")
    refuse_copy(session, content, except_for=[memory_id])
    # the result of a merge may have more tokens than its sources had at the snapshot
    limit_tokens = max(longest_update(entry.ceiling_tokens), memory.token_estimate)
    refuse_longer(content, limit_tokens, f"Memory #{memory_id}")
    refuse_loss(session, [memory], content, reading)
    change = Change(memory_id, memory.image(), memory.image_with(content))
    _edit(session, "update", [change], memory_id, at, [memory], reading)
    before = entry.counting_tokens
    entry.counting_tokens = retained_tokens(entry.ceiling_tokens, memory.token_estimate)
    entry.shown_digest = memory.state_digest
    _count_and_check(session, "updated", 1, before - entry.counting_tokens, at)
    return memory


def delete(
    session: RefinementSession,
    memory_id: int,
    at: datetime | None = None,
    reading: LedgerReading | None = None,
) -> AgentMemory:
    """Discard one memory. May trip the breaker. ``reading``: see ``consolidate``."""
    at = at or clock.now()
    refuse_over_cap(session)
    (memory,), (entry,) = editable_memories(session, [memory_id], "delete")
    refuse_loss(session, [memory], None, reading)
    _edit(session, "delete", _discards([memory], at), memory_id, at, [memory], reading)
    removed, entry.counting_tokens = entry.counting_tokens, 0
    _count_and_check(session, "deleted", 1, removed, at)
    return memory


def protect(session: RefinementSession, memory_id: int, at: datetime | None = None) -> AgentMemory:
    """Make one memory constitutional; nothing is recorded if it already is."""
    memory = kept_memories(session, [memory_id])[0]
    if memory.constitutional:
        return memory
    (entry,) = entries_of_seen(session, [memory])
    image = memory.image()
    change = Change(memory_id, image, {**image, "constitutional": True})
    _edit(session, "protect", [change], memory_id, at or clock.now(), [memory])
    entry.shown_digest = memory.state_digest
    _count(session, "protected", 1)
    return memory


def complete(session: RefinementSession, summary: str, at: datetime | None = None) -> None:
    """End as the agent asked; the summary starts with the measured figures.

    Checks the breaker once more: the session is rolled back instead if that trips.
    """
    summary = bounded_text(summary, field="summary", limit=MAX_SUMMARY_CHARACTERS)
    if not breaker.check(session, SessionEntry.removed_tokens(session), at):
        session.finish("completed", "the agent completed it", summary=summary, at=at)


# -- writing and counting -------------------------------------------------------------------------


def _edit(
    session: RefinementSession,
    operation: str,
    changes: list[Change],
    subject: int,
    at: datetime,
    locked: Iterable[AgentMemory],
    reading: LedgerReading | None = None,
) -> None:
    record = change_memories(
        f"memory_refinement_{operation}",
        changes,
        agent=session.agent,
        session_id=session.id,
        subject=("AgentMemory", subject),
        data={"operation": operation},
        locked={memory.id: memory for memory in locked},
        at=at,
    )
    if reading is not None:
        reading.follow(record, changes, session.agent)


def _add_merged(
    session: RefinementSession, sources: Sequence[AgentMemory], content: str, at: datetime
) -> Change:
    merged = AgentMemory(
        agent=session.agent,
        content=content,
        tags=known_tags([tag for source in sources for tag in source.tags]),
        created_at=min(source.created_at for source in sources),
        recorded_at=at,
        session_id=session.id,
    )
    db.session.add(merged)
    db.session.flush()
    return Change(merged.id, None, merged.image())


def _add_merge_entry(
    session: RefinementSession, result: AgentMemory, ceiling_tokens: int
) -> SessionEntry:
    entry = SessionEntry(
        session_id=session.id,
        memory_id=result.id,
        ceiling_tokens=ceiling_tokens,
        counting_tokens=retained_tokens(ceiling_tokens, result.token_estimate),
        shown_digest=result.state_digest,
    )
    db.session.add(entry)
    return entry


def _count_and_check(
    session: RefinementSession, figure: str, amount: int, removed_tokens: int, at: datetime
) -> None:
    """Count a mutation that removed so many tokens; ``refuse_over_cap`` checked those before."""
    session.mutation_count += 1
    _count(session, figure, amount)
    breaker.check(session, session.removed_tokens + removed_tokens, at)


def _count(session: RefinementSession, figure: str, amount: int) -> None:
    session.stats = {**session.stats, figure: session.stats[figure] + amount}


def _discards(memories: Iterable[AgentMemory], at: datetime) -> list[Change]:
    images = [memory.image() for memory in memories]
    return [
        Change(image["id"], image, {**image, "discarded_at": clock.iso(at)}) for image in images
    ]
