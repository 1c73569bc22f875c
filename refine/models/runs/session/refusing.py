"""Refusals of edits, with messages for the agent's model. A refusal changes nothing."""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import select

from refine import settings
from refine.errors import Refused
from refine.extensions import db
from refine.models.ledger import LOCKS, AgentMemory, content_hash
from refine.models.runs.session.entry import SessionEntry
from refine.models.runs.session.session import MAX_MUTATIONS, RefinementSession
from refine.models.runs.session.survival import LedgerReading
from refine.rules.content import token_estimate
from refine.rules.meaning import details_lost, refusal
from refine.rules.quantities import abbreviated
from refine.rules.retention import MAX_MERGED


class EditRefused(Refused):
    """A rule forbids this edit; ``memory`` is its present state, if the agent has not seen it."""

    def __init__(self, message: str, memory: AgentMemory | None = None) -> None:
        self.memory = memory
        super().__init__(message)


def refuse_over_cap(session: RefinementSession) -> None:
    if session.mutation_count >= MAX_MUTATIONS:
        raise EditRefused(
            f"Hard cap reached: {MAX_MUTATIONS} mutating operations performed in this "
            "session; call complete with a brief summary"
        )


def refuse_number(ids: Collection[int]) -> None:
    if len(set(ids)) < 2:
        raise EditRefused("consolidate requires at least 2 memory IDs")
    if len(set(ids)) > MAX_MERGED:
        raise EditRefused(
            f"consolidate takes at most {MAX_MERGED} memory IDs; merge only those that say the same"
        )


def refuse_longer(content: str, limit_tokens: int, subject: str) -> None:
    """Refuse a text of more tokens; ``subject`` is what it would become, for the message."""
    tokens = token_estimate(content)
    if tokens > limit_tokens:
        raise EditRefused(
            f"{subject} may have at most {limit_tokens} tokens, and this text has {tokens}; "
            "nothing was changed. Remove repetition"
        )


def refuse_loss(
    session: RefinementSession,
    removed: Collection[AgentMemory],
    content: str | None,
    reading: LedgerReading | None,
) -> None:
    """Refuse an edit that loses or falsifies content; only count that if the setting says so."""
    rules, reading = settings.current(), reading or LedgerReading()
    found = reading.objections(session.id, session.agent, removed, content, rules.likeness)
    if found and rules.details == "keep":  # whether an objection is sure or doubtful
        raise EditRefused(refusal(found))
    session.details_lost += details_lost(found)


def refuse_missing(
    found: Mapping[int, tuple[AgentMemory, SessionEntry | None]], ids: Sequence[int]
) -> None:
    kept = {id_ for id_, (memory, _) in found.items() if memory.is_kept_core}
    if missing := [id_ for id_ in ids if id_ not in kept]:
        noun = "Memory" if len(missing) == 1 else "Memories"
        listed = abbreviated([f"#{id_}" for id_ in missing], ", ")
        raise EditRefused(f"{noun} {listed} not found; nothing was changed")


def refuse_locked(memories: Collection[AgentMemory], verb: str) -> None:
    for lock in LOCKS:
        if locked := [str(memory.id) for memory in memories if memory.edit_lock == lock]:
            many = f"memories: {', '.join(locked)}"
            named = many if verb == "consolidate" else f"memory #{locked[0]}"
            raise EditRefused(f"Cannot {verb} {lock} {named}")


def refuse_copy(session: RefinementSession, content: str, ids: Sequence[int]) -> None:
    """Refuse an exact copy: it would be removed as a duplicate before the next session."""
    others = select(AgentMemory.id).where(
        AgentMemory.agent_id == session.agent_id,
        AgentMemory.is_kept_core,
        AgentMemory.content_hash == content_hash(content, session.data_key()),
        AgentMemory.id.not_in(ids),
    )
    if (copy_id := db.session.scalar(others.limit(1))) is not None:
        raise EditRefused(
            f"Memory #{copy_id} already has exactly this content; delete the "
            "redundant memory instead"
        )


def refuse_unseen(
    session: RefinementSession, memory: AgentMemory, entry: SessionEntry | None
) -> SessionEntry:
    """Refuse a memory that the agent was not shown in its present state; return its entry."""
    if entry is None:
        raise EditRefused(
            f"Memory #{memory.id} was not there when this session began; "
            "it can be changed in a later one"
        )
    if entry.shown_digest is None:
        raise EditRefused(f"Memory #{memory.id} was not shown in this session; search for it first")
    if entry.shown_digest != memory.state_digest:
        SessionEntry.show(session, [memory])
        raise EditRefused(
            f"Memory #{memory.id} has changed since you last saw it; nothing was changed. "
            "Its current state is included",
            memory,
        )
    return entry
