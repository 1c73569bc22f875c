"""An agent's edits in a session that its caller holds; EditRefused changes nothing."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import and_, select

from refine import clock
from refine.extensions import db
from refine.models.columns import in_ids
from refine.models.ledger import (
    AgentMemory,
    Change,
    Image,
    change_memories,
    is_kept,
    state_digest,
)
from refine.models.ledger.memory import content_of
from refine.models.runs.session import breaker
from refine.models.runs.session.entry import SessionEntry
from refine.models.runs.session.refusing import (
    EditRefused,
    refuse_copy,
    refuse_locked,
    refuse_longer,
    refuse_loss,
    refuse_missing,
    refuse_number,
    refuse_over_cap,
    refuse_unseen,
)
from refine.models.runs.session.session import STATS, RefinementSession
from refine.models.runs.session.survival import LedgerReading
from refine.rules.content import (
    MAX_SUMMARY_CHARACTERS,
    bounded_text,
    known_tags,
    memory_content,
    token_estimate,
)
from refine.rules.retention import longest_update, retained_tokens


class Edited(NamedTuple):
    """A changed or added memory: its entry, its images, and the tokens that count afterwards."""

    memory: AgentMemory
    entry: SessionEntry
    before: Image | None
    after: Image
    tokens: int


def search(
    session: RefinementSession,
    query: str | None,
    after: datetime | None = None,
    before: datetime | None = None,
) -> list[AgentMemory]:
    """Return matches by date, then id; ``after`` is inclusive, ``before`` exclusive."""
    matching = session.agent.ledger.core()
    if after is not None:
        matching = matching.where(AgentMemory.created_at >= after)
    if before is not None:
        matching = matching.where(AgentMemory.created_at < before)
    wanted, key = (query or "").casefold(), session.data_key()
    found = db.session.scalars(matching)
    return [memory for memory in found if wanted in content_of(memory, key).casefold()]


def consolidate(
    session: RefinementSession,
    ids: Sequence[int],
    content: str,
    at: datetime | None = None,
    reading: LedgerReading | None = None,
) -> AgentMemory:
    """Merge memories into a new one with the earliest date and all tags. May trip the breaker."""
    at = at or clock.now()
    refuse_number(ids)
    refuse_over_cap(session)
    content = memory_content(content)
    found = _editable(session, ids, "consolidate")
    sources = [memory for memory, _ in found]
    refuse_copy(session, content, ids)
    tokens = sum(source.token_estimate for source in sources)
    refuse_longer(content, tokens, "A merge of these memories")
    refuse_loss(session, sources, content, reading)
    merged = AgentMemory(
        agent=session.agent,
        content=content,
        tags=known_tags([tag for source in sources for tag in source.tags]),
        created_at=min(source.created_at for source in sources),
        recorded_at=at,
        updated_at=at,
        session_id=session.id,
    )
    db.session.add(merged)
    db.session.flush()
    ceiling = sum(entry.counting_tokens for _, entry in found)
    entry = SessionEntry(session=session, memory_id=merged.id, ceiling_tokens=ceiling)
    entry.counting_tokens = 0
    tokens = retained_tokens(ceiling, merged.token_estimate)
    edited = [_discarded(memory, entry, at) for memory, entry in found]
    edited.append(Edited(merged, entry, None, merged.image(), tokens))
    _write(session, "consolidate", edited, at, reading)
    return merged


def update(
    session: RefinementSession,
    memory_id: int,
    content: str,
    at: datetime | None = None,
    reading: LedgerReading | None = None,
) -> AgentMemory:
    """Tighten the wording of one memory. May trip the breaker."""
    at = at or clock.now()
    refuse_over_cap(session)
    content = memory_content(content)
    ((memory, entry),) = _editable(session, [memory_id], "update")
    if memory.content == content:
        raise EditRefused(f"Memory #{memory_id} already has this content; nothing to update")
    refuse_copy(session, content, [memory_id])
    # the result of a merge may have more tokens than its sources had at the snapshot
    limit_tokens = max(longest_update(entry.ceiling_tokens), memory.token_estimate)
    refuse_longer(content, limit_tokens, f"Memory #{memory_id}")
    refuse_loss(session, [memory], content, reading)
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
) -> AgentMemory:
    """Discard one memory. May trip the breaker."""
    at = at or clock.now()
    refuse_over_cap(session)
    ((memory, entry),) = _editable(session, [memory_id], "delete")
    refuse_loss(session, [memory], None, reading)
    _write(session, "delete", [_discarded(memory, entry, at)], at, reading)
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
    refuse_missing(found, [memory_id])
    memory, shown = found[memory_id]
    if memory.constitutional:
        return memory
    entry = refuse_unseen(session, memory, shown)
    before = memory.image()
    after, tokens = {**before, "constitutional": True}, entry.counting_tokens
    _write(session, "protect", [Edited(memory, entry, before, after, tokens)], at, reading)
    return memory


def complete(session: RefinementSession, summary: str, at: datetime | None = None) -> None:
    """End as the agent asked, unless the breaker trips; RowAltered if an entry was altered."""
    summary = bounded_text(summary, field="summary", limit=MAX_SUMMARY_CHARACTERS)
    removed = SessionEntry.removed_tokens(session)
    if breaker.trips(session, removed):
        breaker.roll_back(session, removed, at or clock.now())
    else:
        session.removed_tokens = removed
        session.finish("completed", "the agent completed it", summary=summary, at=at)


# -- what an edit works on ------------------------------------------------------------------------

Found = dict[int, tuple[AgentMemory, SessionEntry | None]]


def _editable(
    session: RefinementSession, ids: Sequence[int], verb: str
) -> list[tuple[AgentMemory, SessionEntry]]:
    found = _locked(session, ids)
    refuse_missing(found, ids)
    wanted = [found[id_] for id_ in dict.fromkeys(ids)]
    refuse_locked([memory for memory, _ in wanted], verb)
    return [(memory, refuse_unseen(session, memory, entry)) for memory, entry in wanted]


def _locked(session: RefinementSession, ids: Sequence[int]) -> Found:
    """Lock memories in order of id, with their entries; RowAltered for an altered one."""
    is_its_entry = and_(
        SessionEntry.session_id == session.id,
        SessionEntry.memory_id == AgentMemory.id,
        in_ids(SessionEntry.memory_id, ids),  # otherwise all entries are read
    )
    mine = (
        select(AgentMemory, SessionEntry)
        .outerjoin(SessionEntry, is_its_entry)
        .where(AgentMemory.agent_id == session.agent_id, in_ids(AgentMemory.id, ids))
        .order_by(AgentMemory.id)
        .with_for_update(of=AgentMemory)
        .execution_options(populate_existing=True)
    )
    found: Found = {memory.id: (memory, entry) for memory, entry in db.session.execute(mine)}
    for memory, entry in found.values():
        memory.require_genuine()
        if entry is not None:
            entry.require_genuine()
    return found


# -- how it is written ----------------------------------------------------------------------------


def _discarded(memory: AgentMemory, entry: SessionEntry, at: datetime) -> Edited:
    before = memory.image()
    return Edited(memory, entry, before, {**before, "discarded_at": clock.iso(at)}, 0)


def _write(
    session: RefinementSession,
    operation: str,
    edited: Sequence[Edited],
    at: datetime,
    reading: LedgerReading | None,
) -> None:
    key, since = session.data_key(), session.agent.ledger_version
    removed = session.removed_tokens
    for each in edited:
        removed += each.entry.counting_tokens - each.tokens
        each.entry.counting_tokens = each.tokens
        if is_kept(each.after):
            each.entry.shown_digest = state_digest(each.after, key)
        db.session.add(each.entry)
    stat = STATS[operation]
    # of a merge, its sources
    session.stats = {**session.stats, stat: session.stats[stat] + max(1, len(edited) - 1)}
    session.mutation_count += operation != "protect"
    if not (is_too_much := breaker.trips(session, removed)):
        session.removed_tokens = max(0, removed)
    memories = {each.memory.id: each.memory for each in edited}
    changes = [Change(each.memory.id, each.before, each.after) for each in edited]
    record = change_memories(
        f"memory_refinement_{operation}",
        changes,
        agent=session.agent,
        locked=memories,
        at=at,
        session_id=session.id,
        subject=("AgentMemory", edited[-1].memory.id),
        data={"operation": operation},
    )
    if is_too_much:
        breaker.roll_back(session, removed, at)
    elif reading is not None:
        # one for each memory: a wrong guess means that the ledger is read again
        version = since + len(changes)
        reading.apply_edit(record, changes, memories.values(), since=since, version=version)
