"""An agent's edits in a session that its caller holds; EditRefused changes nothing."""

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import cache
from typing import NamedTuple

from sqlalchemy import BigInteger, Select, and_, any_, bindparam, or_, select
from sqlalchemy.dialects.postgresql import ARRAY

from refine import clock
from refine.extensions import db
from refine.models.attested import write
from refine.models.ledger.image import (
    Change,
    Image,
    is_kept,
    mass_of,
    retired as retired_image,
    state_digest,
)
from refine.models.ledger.memory import LOCKS, AgentMemory, added, change_memories, content_hash
from refine.models.runs.session import breaker
from refine.models.runs.session.entry import SessionEntry
from refine.models.runs.session.judging import EditRefused, judge
from refine.models.runs.session.session import MAX_MUTATIONS, OPERATIONS, RefinementSession
from refine.models.runs.session.survival import LedgerReading, Replacement
from refine.rules.content import (
    MAX_SUMMARY_CHARACTERS,
    bounded_text,
    known_tags,
    memory_content,
    token_estimate,
)
from refine.rules.quantities import abbreviated
from refine.rules.retention import MAX_MERGED, longest_update, retained_tokens
from refine.rules.second_reading import Reason


class Edited(NamedTuple):
    """A changed or added memory: its entry, its images, and the tokens that count afterwards."""

    memory: AgentMemory
    entry: SessionEntry
    before: Image | None
    after: Image
    tokens: int


def consolidate(
    session: RefinementSession,
    ids: Sequence[int],
    content: str,
    at: datetime | None = None,
    reading: LedgerReading | None = None,
    reason: Reason = "same",
) -> AgentMemory:
    """Merge memories into a new one with all tags. May trip the breaker."""
    at = at or clock.now()
    _refuse_number(ids)
    _refuse_over_cap(session)
    content = memory_content(content)
    locked = _locked(session, ids, content)
    found = _editable(session, ids, "consolidate", locked)
    sources = [memory for memory, _ in found]
    _refuse_copy(locked, ids)
    tokens = sum(source.token_estimate for source in sources)
    _refuse_longer(content, tokens, "A merge of these memories")
    edit = Replacement(sources, content, reason)
    _judge(session, edit, reading)
    return _replace(session, "consolidate", edit, found, at, reading)


def update(
    session: RefinementSession,
    memory_id: int,
    content: str,
    at: datetime | None = None,
    reading: LedgerReading | None = None,
    reason: Reason = "same",
) -> AgentMemory:
    """Tighten the wording of one memory, or replace it. May trip the breaker."""
    at = at or clock.now()
    _refuse_over_cap(session)
    content = memory_content(content)
    found = _locked(session, [memory_id], content)
    ((memory, entry),) = _editable(session, [memory_id], "update", found)
    if memory.content == content:
        raise EditRefused(f"Memory #{memory_id} already has this content; nothing to update")
    _refuse_copy(found, [memory_id])
    # the result of a merge may have more tokens than its sources had at the snapshot
    limit_tokens = max(longest_update(entry.ceiling_tokens), memory.token_estimate)
    _refuse_longer(content, limit_tokens, f"Memory #{memory_id}")
    edit = Replacement([memory], content, reason)
    _judge(session, edit, reading)
    if reason != "same":
        return _replace(session, "update", edit, [(memory, entry)], at, reading)
    before = memory.image()
    after = {**before, "content": content, "token_estimate": token_estimate(content)}
    # what the session took away counts as gone, even if somebody else has restored it
    has_counted = entry.counting_tokens > 0
    tokens = retained_tokens(entry.ceiling_tokens, after["token_estimate"]) if has_counted else 0
    _write(session, "update", [Edited(memory, entry, before, after, tokens)], at, reading)
    return memory


def delete(
    session: RefinementSession,
    memory_id: int,
    at: datetime | None = None,
    reading: LedgerReading | None = None,
    reason: Reason = "same",
    by_id: int | None = None,
) -> AgentMemory:
    """Discard one memory, which ``by_id`` carries or replaces. May trip the breaker."""
    at = at or clock.now()
    _refuse_over_cap(session)
    found = _locked(session, [memory_id] if by_id is None else [memory_id, by_id])
    ((memory, entry),) = _editable(session, [memory_id], "delete", found)
    by = _successor(found, memory_id, by_id)
    _judge(session, Replacement([memory], None, reason, by), reading)
    _write(session, "delete", [_discarded(memory, entry, at, reason, by_id)], at, reading)
    return memory


def protect(
    session: RefinementSession,
    memory_id: int,
    at: datetime | None = None,
    reading: LedgerReading | None = None,
) -> AgentMemory:
    """Make one memory constitutional; nothing is recorded if it already is."""
    at = at or clock.now()
    found = _locked(session, [memory_id])
    _refuse_missing(found, [memory_id])
    memory, shown = found[memory_id]
    if memory.constitutional:
        return memory
    entry = _refuse_unseen(session, memory, shown)
    before = memory.image()
    after, tokens = {**before, "constitutional": True}, entry.counting_tokens
    _write(session, "protect", [Edited(memory, entry, before, after, tokens)], at, reading)
    return memory


def complete(session: RefinementSession, summary: str, at: datetime | None = None) -> None:
    """End as the agent asked, unless the breaker trips; RowAltered if an entry was altered."""
    summary = bounded_text(summary, field="summary", limit=MAX_SUMMARY_CHARACTERS)
    removed = SessionEntry.removed_tokens(session)
    if session.is_too_much(removed):
        breaker.roll_back(session, removed, at or clock.now())
    else:
        session.removed_tokens = removed
        session.finish("completed", "the agent completed it", summary=summary, at=at)


# -- what an edit works on ------------------------------------------------------------------------

Found = dict[int, tuple[AgentMemory, SessionEntry | None]]


def _editable(
    session: RefinementSession, ids: Sequence[int], verb: str, found: Found
) -> list[tuple[AgentMemory, SessionEntry]]:
    _refuse_missing(found, ids)
    wanted = [found[id_] for id_ in dict.fromkeys(ids)]
    _refuse_locked([memory for memory, _ in wanted], verb)
    return [(memory, _refuse_unseen(session, memory, entry)) for memory, entry in wanted]


def _successor(found: Found, memory_id: int, by_id: int | None) -> AgentMemory | None:
    if by_id is None:
        return None
    _refuse_missing(found, [by_id])
    if by_id == memory_id:
        raise EditRefused(f"Memory #{memory_id} cannot replace itself; by names another one")
    return found[by_id][0]


def _locked(session: RefinementSession, ids: Sequence[int], content: str | None = None) -> Found:
    """Lock memories in order of id, with their entries, and those that already have a new content;
    RowAltered for an altered one.
    """
    hashed = content_hash(content, session.data_key()) if content is not None else None
    mine = {"session_id": session.id, "agent_id": session.agent_id, "ids": list(ids)}
    rows = db.session.execute(_select_locked(), {**mine, "content_hash": hashed})
    found: Found = {memory.id: (memory, entry) for memory, entry in rows}
    for id_ in found.keys() & set(ids):
        memory, entry = found[id_]
        memory.require_genuine()
        if entry is not None:
            entry.require_genuine()
    return found


@cache
def _select_locked() -> Select[AgentMemory, SessionEntry]:
    """Return a statement that is built once: it precedes every edit."""
    is_wanted = any_(bindparam("ids", type_=ARRAY(BigInteger)))
    is_its_entry = and_(
        SessionEntry.session_id == bindparam("session_id"),
        SessionEntry.memory_id == AgentMemory.id,
        SessionEntry.memory_id == is_wanted,  # otherwise all entries are read
    )
    is_copy = and_(AgentMemory.is_kept_core, AgentMemory.content_hash == bindparam("content_hash"))
    return (
        select(AgentMemory, SessionEntry)
        .outerjoin(SessionEntry, is_its_entry)
        .where(
            AgentMemory.agent_id == bindparam("agent_id"),
            or_(AgentMemory.id == is_wanted, is_copy),
        )
        .order_by(AgentMemory.id)
        .with_for_update(of=AgentMemory)
        .execution_options(populate_existing=True)
    )


# -- what is refused, with messages for the agent's model ------------------------------------------


def _refuse_over_cap(session: RefinementSession) -> None:
    if session.mutation_count >= MAX_MUTATIONS:
        raise EditRefused(
            f"Hard cap reached: {MAX_MUTATIONS} mutating operations performed in this "
            "session; call complete with a brief summary"
        )


def _refuse_number(ids: Collection[int]) -> None:
    if len(set(ids)) < 2:
        raise EditRefused("consolidate requires at least 2 memory IDs")
    if len(set(ids)) > MAX_MERGED:
        raise EditRefused(
            f"consolidate takes at most {MAX_MERGED} memory IDs; merge only those that say the same"
        )


def _refuse_longer(content: str, limit_tokens: int, subject: str) -> None:
    """Refuse a text of more tokens; ``subject`` is what it would become, for the message."""
    tokens = token_estimate(content)
    if tokens > limit_tokens:
        raise EditRefused(
            f"{subject} may have at most {limit_tokens} tokens, and this text has {tokens}; "
            "nothing was changed. Remove repetition"
        )


def _refuse_missing(found: Found, ids: Sequence[int]) -> None:
    kept = {id_ for id_, (memory, _) in found.items() if memory.is_kept_core}
    if missing := [id_ for id_ in ids if id_ not in kept]:
        noun = "Memory" if len(missing) == 1 else "Memories"
        listed = abbreviated([f"#{id_}" for id_ in missing], ", ")
        raise EditRefused(f"{noun} {listed} not found; nothing was changed")


def _refuse_locked(memories: Collection[AgentMemory], verb: str) -> None:
    for lock in LOCKS:
        if locked := [str(memory.id) for memory in memories if memory.edit_lock == lock]:
            many = f"memories: {', '.join(locked)}"
            named = many if verb == "consolidate" else f"memory #{locked[0]}"
            raise EditRefused(f"Cannot {verb} {lock} {named}")


def _refuse_copy(found: Found, ids: Sequence[int]) -> None:
    """Refuse an exact copy: it would be removed as a duplicate before the next session."""
    if copies := found.keys() - set(ids):
        raise EditRefused(
            f"Memory #{min(copies)} already has exactly this content; delete the "
            "redundant memory instead"
        )


def _refuse_unseen(
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


# -- how it is written ----------------------------------------------------------------------------


def _judge(session: RefinementSession, edit: Replacement, reading: LedgerReading | None) -> None:
    reading = reading or LedgerReading()
    found = reading.objections(session, edit)
    if found or edit.reason != "same" or reading.second is not None:
        judge(session, edit, found, reading)


def _replace(
    session: RefinementSession,
    operation: str,
    edit: Replacement,
    found: Sequence[tuple[AgentMemory, SessionEntry]],
    at: datetime,
    reading: LedgerReading | None,
) -> AgentMemory:
    """Add a memory in place of others, which are discarded."""
    new = AgentMemory(
        agent=session.agent,
        content=edit.content,
        tags=known_tags([tag for source in edit.removed for tag in source.tags]),
        **_dates_of(edit, at),
        recorded_at=at,
        updated_at=at,
        session_id=session.id,
    )
    created = added(new)
    ceiling = sum(entry.counting_tokens for _, entry in found)
    entry = SessionEntry(session_id=session.id, memory_id=new.id, ceiling_tokens=ceiling)
    entry.counting_tokens = 0
    tokens = retained_tokens(ceiling, new.token_estimate)
    edited = [_discarded(*each, at, edit.reason, new.id) for each in found]
    edited.append(Edited(new, entry, None, created.after, tokens))
    _write(session, operation, edited, at, reading)
    return new


def _dates_of(edit: Replacement, at: datetime) -> dict[str, datetime]:
    """What replaces an outdated memory is of now; what replaces several, of the last one's date.
    Anything else spans the days of what it replaces.
    """
    first = min(memory.created_at for memory in edit.removed)
    last = max(memory.latest_at for memory in edit.removed)
    if edit.reason == "outdated":
        return {"created_at": last if len(edit.removed) > 1 else at}
    span = {"spans_until": last} if last.date() > first.date() else {}
    return {"created_at": first, **span}


def _discarded(
    memory: AgentMemory, entry: SessionEntry, at: datetime, reason: Reason, successor_id: int | None
) -> Edited:
    before = memory.image()
    return Edited(memory, entry, before, retired_image(before, reason, successor_id, at), 0)


def _write(
    session: RefinementSession,
    operation: str,
    edited: Sequence[Edited],
    at: datetime,
    reading: LedgerReading | None,
) -> None:
    since = session.agent.ledger_version
    changes = [Change(each.memory.id, each.before, each.after) for each in edited]
    record = change_memories(
        f"memory_refinement_{operation}",
        changes,
        agent=session.agent,
        locked={each.memory.id: each.memory for each in edited},
        at=at,
        session_id=session.id,
        subject=edited[-1].memory,
        data={"operation": operation},
    )
    removed = _count(session, operation, edited)
    if session.is_too_much(removed):
        breaker.roll_back(session, removed, at)
        return
    session.removed_tokens = max(0, removed)
    write(*(each.entry for each in edited), session)
    if reading is not None:
        reading.apply_edit(record, changes, since)


def _count(session: RefinementSession, operation: str, edited: Sequence[Edited]) -> int:
    """Update entries and counts; return how many tokens the session has removed with the edit."""
    key, removed = session.data_key(), session.removed_tokens
    for each in edited:
        removed += each.entry.counting_tokens - each.tokens
        each.entry.counting_tokens = each.tokens
        if is_kept(each.after):
            each.entry.shown_digest = state_digest(each.after, key)
    stat, is_mutation = OPERATIONS[operation]
    session.saved_tokens += sum(mass_of(each.before) - mass_of(each.after) for each in edited)
    # of a merge, its sources
    session.count(stat, max(1, len(edited) - 1))
    if retired := sum(each.after["retired_reason"] is not None for each in edited):
        session.count("retired", retired)
    session.mutation_count += is_mutation
    return removed
