"""What an agent may do to its ledger in a session.

Edits work on a session that their caller holds (``HeldSession``) and write change, record and
figures in the caller's transaction; ``search`` and ``complete`` work on the session itself, held as
``RefinementSession.held`` does. A refusal (EditRefused) changes nothing.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

from refine import clock
from refine.extensions import db
from refine.models.ledger import AgentMemory, Change, Image, content_hash
from refine.models.ledger.stored import StoredMemory
from refine.models.runs.session import breaker
from refine.models.runs.session.entry import Entry, SessionEntry
from refine.models.runs.session.held import Edit, HeldSession, Lookup
from refine.models.runs.session.refusing import (
    EditRefused,
    refuse_copy,
    refuse_locked,
    refuse_longer,
    refuse_loss,
    refuse_many,
    refuse_missing,
    refuse_over_cap,
    refuse_unseen,
)
from refine.models.runs.session.session import RefinementSession
from refine.models.runs.session.survival import LedgerReading
from refine.rules.content import MAX_SUMMARY_CHARACTERS, bounded_text, known_tags, memory_content
from refine.rules.retention import longest_update, retained_tokens


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

    Only those that ``fits`` accepts are returned; it is asked in their order.

    ``query`` matches anywhere, regardless of case; ``after`` is inclusive, ``before`` exclusive.
    The returned memories count as shown.
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
    SessionEntry.show(session, shown)
    return len(found), shown


def consolidate(
    session: HeldSession,
    ids: Sequence[int],
    content: str,
    at: datetime | None = None,
    reading: LedgerReading | None = None,
) -> StoredMemory:
    """Merge two to eight memories into a new one, dated as the earliest, with all their tags.

    The sources are discarded. May trip the breaker. ``reading`` spares reading the ledger again.
    """
    at = at or clock.now()
    if len(set(ids)) < 2:
        raise EditRefused("consolidate requires at least 2 memory IDs")
    refuse_over_cap(session)
    content = memory_content(content)
    lookup = session.look_up(ids, content_hash(content, session.agent.key), is_merge=True)
    found = _editable(session, lookup, ids, "consolidate")
    sources = [memory for memory, _ in found]
    refuse_many(sources)
    refuse_copy(lookup)
    tokens = sum(source.token_estimate for source in sources)
    refuse_longer(content, tokens, "A merge of these memories")
    refuse_loss(session, sources, content, reading)
    merged = _merged(session, lookup, sources, content, at)
    _write(session, _merge(found, merged, at), lookup, at, reading)
    return merged


def update(
    session: HeldSession,
    memory_id: int,
    content: str,
    at: datetime | None = None,
    reading: LedgerReading | None = None,
) -> StoredMemory:
    """Tighten the wording of one memory. May trip the breaker. ``reading``: see ``consolidate``."""
    at = at or clock.now()
    refuse_over_cap(session)
    content = memory_content(content)
    lookup = session.look_up([memory_id], content_hash(content, session.agent.key))
    ((memory, entry),) = _editable(session, lookup, [memory_id], "update")
    if memory.content == content:
        raise EditRefused(f"Memory #{memory_id} already has this content; nothing to update")
    refuse_copy(lookup)
    # the result of a merge may have more tokens than its sources had at the snapshot
    limit_tokens = max(longest_update(entry.ceiling_tokens), memory.token_estimate)
    refuse_longer(content, limit_tokens, f"Memory #{memory_id}")
    refuse_loss(session, [memory], content, reading)
    change = _changed(memory, memory.image_with(content), at)
    # what the session took away counts as gone, even if somebody else has restored it
    has_counted = entry.counting_tokens > 0
    counting = retained_tokens(entry.ceiling_tokens, memory.token_estimate) if has_counted else 0
    counted = entry._replace(counting_tokens=counting, shown_digest=memory.state_digest)
    edit = Edit(
        "update",
        memory_id,
        [change],
        [memory],
        [counted],
        stat=("updated", 1),
        removed_tokens=entry.counting_tokens - counting,
    )
    _write(session, edit, lookup, at, reading)
    return memory


def delete(
    session: HeldSession,
    memory_id: int,
    at: datetime | None = None,
    reading: LedgerReading | None = None,
) -> StoredMemory:
    """Discard one memory. May trip the breaker. ``reading``: see ``consolidate``."""
    at = at or clock.now()
    refuse_over_cap(session)
    lookup = session.look_up([memory_id])
    ((memory, entry),) = _editable(session, lookup, [memory_id], "delete")
    refuse_loss(session, [memory], None, reading)
    edit = Edit(
        "delete",
        memory_id,
        [_discarded(memory, at)],
        [memory],
        [entry._replace(counting_tokens=0)],
        stat=("deleted", 1),
        removed_tokens=entry.counting_tokens,
    )
    _write(session, edit, lookup, at, reading)
    return memory


def protect(
    session: HeldSession,
    memory_id: int,
    at: datetime | None = None,
    reading: LedgerReading | None = None,
) -> StoredMemory:
    """Make one memory constitutional; nothing is recorded if it already is."""
    at = at or clock.now()
    lookup = session.look_up([memory_id])
    refuse_missing(lookup, [memory_id])
    memory = lookup.memories[memory_id]
    if memory.constitutional:
        return memory
    entry = refuse_unseen(session, memory, lookup.entries.get(memory_id))
    change = _changed(memory, {**memory.image(), "constitutional": True}, at)
    counted = entry._replace(shown_digest=memory.state_digest)
    edit = Edit("protect", memory_id, [change], [memory], [counted], stat=("protected", 1))
    _write(session, edit, lookup, at, reading)
    return memory


def complete(session: RefinementSession, summary: str, at: datetime | None = None) -> None:
    """End as the agent asked; the summary starts with the measured figures.

    Checks the breaker once more: the session is rolled back instead if that trips. RowAltered if
    its entries are not what it was measured by.
    """
    summary = bounded_text(summary, field="summary", limit=MAX_SUMMARY_CHARACTERS)
    if not breaker.check(session, SessionEntry.removed_tokens(session), at):
        session.finish("completed", "the agent completed it", summary=summary, at=at)


def _editable(
    session: HeldSession, lookup: Lookup, ids: Sequence[int], verb: str
) -> list[tuple[StoredMemory, Entry]]:
    """The kept, unlocked, shown and unchanged memories of these ids, with their entries."""
    refuse_missing(lookup, ids)
    memories = [lookup.memories[id_] for id_ in dict.fromkeys(ids)]
    refuse_locked(memories, verb)
    return [
        (memory, refuse_unseen(session, memory, lookup.entries.get(memory.id)))
        for memory in memories
    ]


def _merged(
    session: HeldSession,
    lookup: Lookup,
    sources: Sequence[StoredMemory],
    content: str,
    at: datetime,
) -> StoredMemory:
    return StoredMemory.new(
        session.agent.key,
        id=lookup.new_memory_id,
        agent_id=session.agent.id,
        content=content,
        tags=known_tags([tag for source in sources for tag in source.tags]),
        created_at=min(source.created_at for source in sources),
        recorded_at=at,
        session_id=session.id,
    )


def _merge(found: Sequence[tuple[StoredMemory, Entry]], merged: StoredMemory, at: datetime) -> Edit:
    """The edit that discards what was found for the merged memory."""
    ceiling = sum(entry.counting_tokens for _, entry in found)
    counting = retained_tokens(ceiling, merged.token_estimate)
    sources = [memory for memory, _ in found]
    return Edit(
        "consolidate",
        merged.id,
        [*(_discarded(source, at) for source in sources), Change(merged.id, None, merged.image())],
        sources,
        [
            *(entry._replace(counting_tokens=0) for _, entry in found),
            Entry(merged.id, ceiling, counting, merged.state_digest),
        ],
        new=merged,
        stat=("consolidated", len(sources)),
        removed_tokens=ceiling - counting,
    )


def _changed(memory: StoredMemory, after: Image, at: datetime) -> Change:
    before = memory.image()
    memory.apply(after, at)
    return Change(memory.id, before, after)


def _discarded(memory: StoredMemory, at: datetime) -> Change:
    return _changed(memory, {**memory.image(), "discarded_at": clock.iso(at)}, at)


def _write(
    session: HeldSession,
    edit: Edit,
    lookup: Lookup,
    at: datetime,
    reading: LedgerReading | None,
) -> None:
    record, version = session.write(edit, lookup.record_id, at)
    if reading is not None:
        memories = [*edit.memories, *([edit.new] if edit.new is not None else [])]
        since = session.agent.ledger_version
        reading.follow(record, edit.changes, memories, since=since, version=version)
