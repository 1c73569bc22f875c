"""What an agent may do to its ledger in a session.

Every edit expects a session that its caller holds (``RefinementSession.held``), and writes change,
record and figures in the caller's transaction. A refusal (EditRefused) changes nothing.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from sqlalchemy import func, select

from refine import clock, settings
from refine.errors import Refused, RowAltered
from refine.extensions import db
from refine.models.audit import AuditLog
from refine.models.ledger import (
    LOCKS,
    AgentMemory,
    Change,
    change_memories,
    content_hash,
    state_digest,
)
from refine.models.runs.session import breaker
from refine.models.runs.session.breaker import MUTATIONS, abbreviated
from refine.models.runs.session.entry import SessionEntry
from refine.models.runs.session.session import RefinementSession
from refine.models.runs.session.state import MAX_MUTATIONS
from refine.models.runs.session.survival import LedgerReading
from refine.rules.content import MAX_SUMMARY_CHARACTERS, bounded_text, known_tags, memory_content
from refine.rules.limits import MAX_MERGED, longest_update
from refine.rules.retention import retained_tokens
from refine.rules.survival import refusal
from refine.rules.tokens import token_estimate


class EditRefused(Refused):
    """A rule forbids this edit; the message is written for the agent's model.

    ``memory`` is the memory as it is now, if it has changed since the agent saw it.
    """

    def __init__(self, message: str, memory: AgentMemory | None = None) -> None:
        self.memory = memory
        super().__init__(message)


def search(
    session: RefinementSession,
    query: str | None,
    after: datetime | None = None,
    before: datetime | None = None,
    *,
    limit: int,
) -> tuple[int, Sequence[AgentMemory]]:
    """Return how many kept core memories match, and the first ``limit`` by date, then id.

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
    SessionEntry.show(session.id, found[:limit])
    return len(found), found[:limit]


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
    _refuse_over_cap(session)
    content = memory_content(content)
    sources = _editable(session, ids, "consolidate")
    _refuse_many(sources)
    _refuse_copy(session, content, except_for=ids)
    _refuse_longer(
        content, sum(source.token_estimate for source in sources), "A merge of these memories"
    )
    _refuse_loss(session, sources, content, reading)
    merged = _add_merged(session, sources, content, at)
    _edit(session, "consolidate", [*_discards(sources, at), merged], merged.memory_id, at)
    entries = SessionEntry.of(session.id, [source.id for source in sources])
    ceiling = sum(entry.counting_tokens for entry in entries.values())
    for entry in entries.values():
        entry.counting_tokens, entry.merged_into_id = 0, merged.memory_id
    result = db.session.get_one(AgentMemory, merged.memory_id)
    _add_merge_entry(session, result, ceiling)
    _count_and_check(session, "consolidated", len(sources), at)
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
    _refuse_over_cap(session)
    content = memory_content(content)
    (memory,) = _editable(session, [memory_id], "update")
    if memory.content == content:
        raise EditRefused(f"Memory #{memory_id} already has this content; nothing to update")
    _refuse_copy(session, content, except_for=[memory_id])
    entry = SessionEntry.of(session.id, [memory_id])[memory_id]
    # the result of a merge may have more tokens than its sources had at the snapshot
    limit_tokens = max(longest_update(entry.ceiling_tokens), memory.token_estimate)
    _refuse_longer(content, limit_tokens, f"Memory #{memory_id}")
    _refuse_loss(session, [memory], content, reading)
    change = Change(memory_id, memory.image(), memory.image_with(content))
    _edit(session, "update", [change], memory_id, at)
    entry.counting_tokens = retained_tokens(entry.ceiling_tokens, memory.token_estimate)
    SessionEntry.show(session.id, [memory])
    _count_and_check(session, "updated", 1, at)
    return memory


def delete(
    session: RefinementSession,
    memory_id: int,
    at: datetime | None = None,
    reading: LedgerReading | None = None,
) -> AgentMemory:
    """Discard one memory. May trip the breaker. ``reading``: see ``consolidate``."""
    at = at or clock.now()
    _refuse_over_cap(session)
    (memory,) = _editable(session, [memory_id], "delete")
    _refuse_loss(session, [memory], None, reading)
    _edit(session, "delete", _discards([memory], at), memory_id, at)
    SessionEntry.of(session.id, [memory_id])[memory_id].counting_tokens = 0
    _count_and_check(session, "deleted", 1, at)
    return memory


def protect(session: RefinementSession, memory_id: int, at: datetime | None = None) -> AgentMemory:
    """Make one memory constitutional; nothing is recorded if it already is."""
    memory = _kept(session, [memory_id])[0]
    if memory.constitutional:
        return memory
    _refuse_unseen(session, [memory])
    image = memory.image()
    change = Change(memory_id, image, {**image, "constitutional": True})
    _edit(session, "protect", [change], memory_id, at or clock.now())
    SessionEntry.show(session.id, [memory])
    _count(session, "protected", 1)
    return memory


def complete(session: RefinementSession, summary: str, at: datetime | None = None) -> None:
    """End as the agent asked; the summary starts with the measured figures.

    Checks the breaker once more: the session is rolled back instead if that trips.
    """
    summary = bounded_text(summary, field="summary", limit=MAX_SUMMARY_CHARACTERS)
    if not breaker.check(session, at):
        session.finish("completed", "the agent completed it", summary=summary, at=at)


# -- refusals -------------------------------------------------------------------------------------


def _refuse_over_cap(session: RefinementSession) -> None:
    _require_present_figures(session)
    if session.mutation_count >= MAX_MUTATIONS:
        raise EditRefused(
            f"Hard cap reached: {MAX_MUTATIONS} mutating operations performed in this "
            "session; call complete with a brief summary"
        )


def _refuse_many(sources: Collection[AgentMemory]) -> None:
    if len(sources) > MAX_MERGED:
        raise EditRefused(
            f"consolidate takes at most {MAX_MERGED} memory IDs; merge only those that say the same"
        )


def _refuse_longer(content: str, limit_tokens: int, subject: str) -> None:
    tokens = token_estimate(content)
    if tokens > limit_tokens:
        raise EditRefused(
            f"{subject} may have at most {limit_tokens} tokens, and this text has {tokens}; "
            "nothing was changed. Leave out what is said twice"
        )


def _refuse_loss(
    session: RefinementSession,
    removed: Sequence[AgentMemory],
    content: str | None,
    reading: LedgerReading | None,
) -> None:
    """Refuse what the ledger would not go on saying; or count it, where the operator wants that."""
    rules = settings.current()
    lost = (reading or LedgerReading()).losses(session, removed, content, rules.likeness)
    if lost and rules.details == "keep":
        raise EditRefused(refusal(lost, rules.likeness))
    session.details_lost += len({detail for loss in lost for detail in loss.details})


def _require_present_figures(session: RefinementSession) -> None:
    """Refuse an older version of the session's row, or other entries than it was measured by."""
    made = db.session.scalar(
        select(func.count()).where(
            AuditLog.session_id == session.id, AuditLog.action.in_(MUTATIONS)
        )
    )
    removed = SessionEntry.removed_tokens(session)
    if (made, removed) != (session.mutation_count, session.removed_tokens):
        raise RowAltered(session.row_name)


def _editable(session: RefinementSession, ids: Collection[int], verb: str) -> list[AgentMemory]:
    """The kept, unlocked, shown and unchanged memories of these ids, or EditRefused."""
    memories = _kept(session, ids)
    for lock in LOCKS:
        if locked := [memory.id for memory in memories if memory.edit_lock == lock]:
            raise EditRefused(f"Cannot {verb} {lock} {_named(locked, verb)}")
    _refuse_unseen(session, memories)
    return memories


def _kept(session: RefinementSession, ids: Collection[int]) -> list[AgentMemory]:
    found = AgentMemory.lock_rows(session.agent, set(ids))
    kept = {id_ for id_, memory in found.items() if memory.is_kept_core}
    if missing := [id_ for id_ in ids if id_ not in kept]:
        noun = "Memory" if len(missing) == 1 else "Memories"
        listed = abbreviated([f"#{id_}" for id_ in missing], ", ")
        raise EditRefused(f"{noun} {listed} not found; nothing was changed")
    return [found[id_] for id_ in dict.fromkeys(ids)]


def _refuse_copy(session: RefinementSession, content: str, *, except_for: Collection[int]) -> None:
    """An exact copy would be removed as a duplicate before the next session."""
    hashed = content_hash(content, session.data_key())
    same = session.agent.ledger.core_with(hashed, except_for=list(except_for))
    if same is not None:
        raise EditRefused(
            f"Memory #{same.id} already has exactly this content; delete the "
            "redundant memory instead"
        )


def _refuse_unseen(session: RefinementSession, memories: Collection[AgentMemory]) -> None:
    """The agent may change only what it was shown in its present state."""
    entries = SessionEntry.of(session.id, [memory.id for memory in memories])
    for memory in memories:
        entry = entries.get(memory.id)
        if entry is None:
            raise EditRefused(
                f"Memory #{memory.id} was not there when this session began; "
                "it can be changed in a later one"
            )
        if entry.shown_digest is None:
            raise EditRefused(
                f"Memory #{memory.id} was not shown in this session; search for it first"
            )
        if entry.shown_digest != state_digest(memory.image(), session.data_key()):
            SessionEntry.show(session.id, [memory])
            raise EditRefused(
                f"Memory #{memory.id} has changed since you last saw it; nothing was changed. "
                "Its current state is included",
                memory,
            )


# -- writing and counting -------------------------------------------------------------------------


def _edit(
    session: RefinementSession, operation: str, changes: list[Change], subject: int, at: datetime
) -> None:
    change_memories(
        f"memory_refinement_{operation}",
        changes,
        agent=session.agent,
        session_id=session.id,
        subject=("AgentMemory", subject),
        data={"operation": operation},
        at=at,
    )


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


def _add_merge_entry(session: RefinementSession, result: AgentMemory, ceiling_tokens: int) -> None:
    db.session.add(
        SessionEntry(
            session_id=session.id,
            memory_id=result.id,
            ceiling_tokens=ceiling_tokens,
            counting_tokens=retained_tokens(ceiling_tokens, result.token_estimate),
            shown_digest=result.state_digest,
            is_merge_result=True,
        )
    )


def _count_and_check(session: RefinementSession, figure: str, amount: int, at: datetime) -> None:
    session.mutation_count += 1
    _count(session, figure, amount)
    breaker.check(session, at)


def _count(session: RefinementSession, figure: str, amount: int) -> None:
    session.stats = {**session.stats, figure: session.stats[figure] + amount}


def _discards(memories: Iterable[AgentMemory], at: datetime) -> list[Change]:
    images = [memory.image() for memory in memories]
    return [
        Change(image["id"], image, {**image, "discarded_at": clock.iso(at)}) for image in images
    ]


def _named(ids: Sequence[int], verb: str) -> str:
    if verb == "consolidate":
        return f"memories: {', '.join(str(id_) for id_ in ids)}"
    return f"memory #{ids[0]}"
