"""Which edits a session refuses, and what the agent's model is told then.

A refusal (EditRefused) changes nothing.
"""

from collections.abc import Collection, Sequence

from sqlalchemy import func, select

from refine import settings
from refine.errors import Refused, RowAltered
from refine.extensions import db
from refine.models.audit import AuditLog
from refine.models.ledger import LOCKS, AgentMemory, content_hash, state_digest
from refine.models.runs.session.breaker import MUTATIONS
from refine.models.runs.session.entry import SessionEntry
from refine.models.runs.session.session import RefinementSession
from refine.models.runs.session.state import MAX_MUTATIONS
from refine.models.runs.session.survival import LedgerReading
from refine.rules.limits import MAX_MERGED
from refine.rules.quantities import abbreviated
from refine.rules.survival import refusal
from refine.rules.tokens import token_estimate


class EditRefused(Refused):
    """A rule forbids this edit; the message is written for the agent's model.

    ``memory`` is the memory as it is now, if it has changed since the agent saw it.
    """

    def __init__(self, message: str, memory: AgentMemory | None = None) -> None:
        self.memory = memory
        super().__init__(message)


def refuse_over_cap(session: RefinementSession) -> None:
    """Refuse the eleventh mutation; RowAltered if the figures are not those of the records."""
    _require_present_figures(session)
    if session.mutation_count >= MAX_MUTATIONS:
        raise EditRefused(
            f"Hard cap reached: {MAX_MUTATIONS} mutating operations performed in this "
            "session; call complete with a brief summary"
        )


def refuse_many(sources: Collection[AgentMemory]) -> None:
    """Refuse a merge of more memories than one call may take."""
    if len(sources) > MAX_MERGED:
        raise EditRefused(
            f"consolidate takes at most {MAX_MERGED} memory IDs; merge only those that say the same"
        )


def refuse_longer(content: str, limit_tokens: int, subject: str) -> None:
    """Refuse a text of more tokens; ``subject`` is what it would become, for the message."""
    tokens = token_estimate(content)
    if tokens > limit_tokens:
        raise EditRefused(
            f"{subject} may have at most {limit_tokens} tokens, and this text has {tokens}; "
            "nothing was changed. Leave out what is said twice"
        )


def refuse_loss(
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
    made = select(func.count()).where(
        AuditLog.session_id == session.id, AuditLog.action.in_(MUTATIONS)
    )
    counting = SessionEntry.select_counting_tokens(session)
    figures = db.session.execute(select(made.scalar_subquery(), counting.scalar_subquery())).one()
    present = (session.mutation_count, (session.mass_before or 0) - session.removed_tokens)
    if tuple(figures) != present:
        raise RowAltered(session.row_name)


def editable_memories(
    session: RefinementSession, ids: Collection[int], verb: str
) -> tuple[list[AgentMemory], list[SessionEntry]]:
    """Return the kept, unlocked, shown and unchanged memories of these ids, or EditRefused.

    With their entries, in the same order.
    """
    memories = kept_memories(session, ids)
    for lock in LOCKS:
        if locked := [memory.id for memory in memories if memory.edit_lock == lock]:
            raise EditRefused(f"Cannot {verb} {lock} {_named(locked, verb)}")
    return memories, entries_of_seen(session, memories)


def kept_memories(session: RefinementSession, ids: Collection[int]) -> list[AgentMemory]:
    """Return the kept core memories of these ids, locked in the database, or EditRefused."""
    found = AgentMemory.lock_rows(session.agent, set(ids))
    kept = {id_ for id_, memory in found.items() if memory.is_kept_core}
    if missing := [id_ for id_ in ids if id_ not in kept]:
        noun = "Memory" if len(missing) == 1 else "Memories"
        listed = abbreviated([f"#{id_}" for id_ in missing], ", ")
        raise EditRefused(f"{noun} {listed} not found; nothing was changed")
    return [found[id_] for id_ in dict.fromkeys(ids)]


def refuse_copy(session: RefinementSession, content: str, *, except_for: Collection[int]) -> None:
    """Refuse an exact copy: it would be removed as a duplicate before the next session."""
    hashed = content_hash(content, session.data_key())
    same = session.agent.ledger.core_with(hashed, except_for=list(except_for))
    if same is not None:
        raise EditRefused(
            f"Memory #{same.id} already has exactly this content; delete the "
            "redundant memory instead"
        )


def entries_of_seen(
    session: RefinementSession, memories: Sequence[AgentMemory]
) -> list[SessionEntry]:
    """Return the entries of memories that the agent was shown in their present state.

    Else EditRefused: nothing else may be changed.
    """
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
            entry.shown_digest = memory.state_digest
            raise EditRefused(
                f"Memory #{memory.id} has changed since you last saw it; nothing was changed. "
                "Its current state is included",
                memory,
            )
    return [entries[memory.id] for memory in memories]


def _named(ids: Sequence[int], verb: str) -> str:
    if verb == "consolidate":
        return f"memories: {', '.join(str(id_) for id_ in ids)}"
    return f"memory #{ids[0]}"
