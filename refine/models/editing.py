"""What an agent may do to its ledger in a session, the circuit breaker, and the whole way back.

Every verb expects a session that is held (``RefinementSession.held``) and writes change, record
and figures in the caller's transaction; a refusal changes nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from refine import clock
from refine.errors import Refused
from refine.extensions import db
from refine.models.audit import EDITS, AuditLog
from refine.models.image import Change, Image, changes_in, iso
from refine.models.memory import AgentMemory, change_memories
from refine.models.session_entry import SessionEntry
from refine.rules.content import known_tags, memory_content
from refine.rules.retention import counting_tokens

if TYPE_CHECKING:
    import uuid

    from sqlalchemy.orm import Mapped

    from refine.models.agent import Agent

MAX_MUTATIONS = 10

# How much of a list the agent is told, of edits and of the memories of each.
_MOST_TOLD = 20

# Duplicates are removed before the loop and stay removed when it is rolled back.
_LOOP_EDITS = tuple(action for action in EDITS if action != "memory_refinement_dedup")


class EditRefused(Refused):
    """A rule forbids this edit; the message is written for the agent's model.

    ``memory`` is the memory as it now stands, where the refusal is that it has changed.
    """

    def __init__(self, message: str, memory: AgentMemory | None = None) -> None:
        self.memory = memory
        super().__init__(message)


class Editing:
    """The edits of a session."""

    if TYPE_CHECKING:
        id: Mapped[uuid.UUID]
        agent: Mapped[Agent]
        memories_before: Mapped[int | None]
        mass_before: Mapped[int | None]
        removable_tokens: Mapped[int]
        removed_tokens: Mapped[int]
        mutation_count: Mapped[int]
        stats: Mapped[dict[str, int]]

        finish: Callable[..., None]

    # -- seeing -----------------------------------------------------------------------------------

    def search(
        self,
        query: str | None,
        after: datetime | None = None,
        before: datetime | None = None,
        *,
        limit: int,
    ) -> tuple[int, Sequence[AgentMemory]]:
        """Return how many kept core memories match, and the first ``limit`` by date, then id.

        ``query`` matches anywhere, whatever the case; ``after`` is inclusive, ``before`` not. What
        is returned counts as shown.
        """
        matching = self.agent.memories("core")
        if after is not None:
            matching = matching.where(AgentMemory.created_at >= after)
        if before is not None:
            matching = matching.where(AgentMemory.created_at < before)
        wanted = (query or "").casefold()
        found = [
            memory for memory in db.session.scalars(matching) if wanted in memory.content.casefold()
        ]
        self._show(found[:limit])
        return len(found), found[:limit]

    # -- edits ------------------------------------------------------------------------------------

    def consolidate(
        self, ids: Collection[int], content: str, at: datetime | None = None
    ) -> AgentMemory:
        """Merge at least two memories into one new one, dated as the earliest, with all their tags.

        The sources are discarded. May trip the breaker.
        """
        at = at or clock.now()
        if len(set(ids)) < 2:
            raise EditRefused("consolidate requires at least 2 memory IDs")
        self._refuse_over_cap()
        content = memory_content(content)
        sources = self._editable(ids, "consolidate")
        merged = self._merged(sources, content, at)
        self._edit("consolidate", [*_discarding(sources, at), merged], merged.memory_id, at)
        entries = self._entries(source.id for source in sources)
        ceiling = sum(entry.counting_tokens for entry in entries.values())
        for entry in entries.values():
            entry.counting_tokens, entry.merged_into_id = 0, merged.memory_id
        result = db.session.get_one(AgentMemory, merged.memory_id)
        self._count_result(result, ceiling)
        self._count_mutation("consolidated", len(sources), at)
        return result

    def update(self, memory_id: int, content: str, at: datetime | None = None) -> AgentMemory:
        """Rewrite one memory. May trip the breaker."""
        at = at or clock.now()
        self._refuse_over_cap()
        content = memory_content(content)
        (memory,) = self._editable([memory_id], "update")
        if memory.content == content:
            raise EditRefused(f"Memory #{memory_id} already has this content; nothing to update")
        self._edit(
            "update", [Change(memory_id, memory.image(), memory.rewritten(content))], memory_id, at
        )
        entry = self._entries([memory_id])[memory_id]
        entry.counting_tokens = counting_tokens(entry.ceiling_tokens, memory.token_estimate)
        self._show([memory])
        self._count_mutation("updated", 1, at)
        return memory

    def delete(self, memory_id: int, at: datetime | None = None) -> AgentMemory:
        """Discard one memory. May trip the breaker."""
        at = at or clock.now()
        self._refuse_over_cap()
        (memory,) = self._editable([memory_id], "delete")
        self._edit("delete", _discarding([memory], at), memory_id, at)
        self._entries([memory_id])[memory_id].counting_tokens = 0
        self._count_mutation("deleted", 1, at)
        return memory

    def protect(self, memory_id: int, at: datetime | None = None) -> AgentMemory:
        """Make one memory constitutional; nothing is recorded where it already is."""
        memory = self._kept([memory_id])[0]
        if memory.constitutional:
            return memory
        self._refuse_unseen([memory])
        image = memory.image()
        change = Change(memory_id, image, {**image, "constitutional": True})
        self._edit("protect", [change], memory_id, at or clock.now())
        self._show([memory])
        self._count("protected", 1)
        return memory

    # -- the circuit breaker ----------------------------------------------------------------------

    def trip_breaker(self, at: datetime | None = None) -> bool:
        """Measure what the session removed; roll all of it back if that is more than it may.

        Tells whether it did. An empty snapshot has no breaker.
        """
        db.session.flush()
        counting = select(func.coalesce(func.sum(SessionEntry.counting_tokens), 0)).where(
            SessionEntry.session_id == self.id
        )
        removed = int(self.mass_before or 0) - int(db.session.scalar(counting) or 0)
        if not self.memories_before or removed <= self.removable_tokens:
            self.removed_tokens = max(0, removed)
            return False
        self.roll_back(removed, at or clock.now())
        return True

    def roll_back(self, attempted_tokens: int, at: datetime) -> None:
        """Undo every edit of the loop, newest first, and end the session ``rolled_back``.

        Field by field: what an admin did meanwhile stays, and so does the removal of duplicates.
        """
        records = self._records_of_the_loop()
        edits = [record for record in records if self._is_loop_edit(record)]
        for entry in self._entries().values():
            entry.counting_tokens = 0 if entry.is_merge_result else entry.ceiling_tokens
            entry.merged_into_id = None
        self.removed_tokens = 0
        reason = (
            f"it would have removed {attempted_tokens} of {self.mass_before} tokens; "
            f"at most {self.removable_tokens} may go"
        )
        self.finish(
            "rolled_back",
            reason,
            changes=self._reversal(records, at),
            data={"attempted_tokens": attempted_tokens},
            journal=_undone(edits, reason),
            at=at,
        )

    def _records_of_the_loop(self) -> Sequence[AuditLog]:
        """All records of the agent since the loop's first edit, newest first by sequence."""
        first_edit = select(func.min(AuditLog.sequence)).where(
            AuditLog.session_id == self.id, AuditLog.action.in_(_LOOP_EDITS)
        )
        return db.session.scalars(
            select(AuditLog)
            .where(
                AuditLog.agent_id == self.agent.id,
                AuditLog.sequence >= first_edit.scalar_subquery(),
            )
            .order_by(AuditLog.sequence.desc())
        ).all()

    def _is_loop_edit(self, record: AuditLog) -> bool:
        return record.session_id == self.id and record.action in _LOOP_EDITS

    def _reversal(self, records: Sequence[AuditLog], at: datetime) -> list[Change]:
        """The changes that take memories from where they stand to where the edits found them.

        A field that somebody else changed after an edit stays as they left it.
        """
        changes = [
            (self._is_loop_edit(record), change)
            for record in records
            for change in changes_in(record.data, record.sealed)
        ]
        edited = {change.memory_id for is_ours, change in changes if is_ours}
        present: dict[int, Image] = {
            id_: memory.image() for id_, memory in AgentMemory.locked(self.agent, edited).items()
        }
        target = dict(present)
        others: dict[int, set[str]] = defaultdict(set)
        for is_ours, change in changes:
            id_ = change.memory_id
            if is_ours:
                target[id_] = change.reversed_onto(target[id_], at, but=others[id_])
            else:
                others[id_].update(change.altered())
        return [
            Change(id_, present[id_], target[id_])
            for id_ in sorted(target)
            if target[id_] != present[id_]
        ]

    # -- what may be changed ----------------------------------------------------------------------

    def _refuse_over_cap(self) -> None:
        if self.mutation_count >= MAX_MUTATIONS:
            raise EditRefused(
                f"Hard cap reached: {MAX_MUTATIONS} mutating operations performed in this "
                "session; call complete with a brief summary"
            )

    def _editable(self, ids: Collection[int], verb: str) -> list[AgentMemory]:
        """The kept, unlocked, shown and unchanged memories of these ids, or EditRefused."""
        memories = self._kept(ids)
        for lock, locked in (
            ("constitutional", [memory.id for memory in memories if memory.constitutional]),
            ("immutable", [memory.id for memory in memories if memory.is_immutable]),
        ):
            if locked:
                raise EditRefused(f"Cannot {verb} {lock} {_named(locked, verb)}")
        self._refuse_unseen(memories)
        return memories

    def _kept(self, ids: Collection[int]) -> list[AgentMemory]:
        found = AgentMemory.locked(self.agent, set(ids))
        kept = {
            id_
            for id_, memory in found.items()
            if memory.memory_type == "core" and not memory.discarded
        }
        if missing := [id_ for id_ in ids if id_ not in kept]:
            noun = "Memory" if len(missing) == 1 else "Memories"
            listed = ", ".join(f"#{id_}" for id_ in missing)
            raise EditRefused(f"{noun} {listed} not found; nothing was changed")
        return [found[id_] for id_ in dict.fromkeys(ids)]

    def _refuse_unseen(self, memories: Collection[AgentMemory]) -> None:
        """Nothing is changed that the agent does not see as it is."""
        entries = self._entries(memory.id for memory in memories)
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
            if entry.shown_digest != memory.state_digest:
                self._show([memory])
                raise EditRefused(
                    f"Memory #{memory.id} has changed since you last saw it; nothing was changed. "
                    "This is how it stands now",
                    memory,
                )

    # -- making and counting an edit --------------------------------------------------------------

    def _edit(self, operation: str, changes: list[Change], subject: int, at: datetime) -> None:
        change_memories(
            f"memory_refinement_{operation}",
            changes,
            agent=self.agent,
            session_id=self.id,
            subject=("AgentMemory", subject),
            data={"operation": operation},
            at=at,
        )

    def _merged(self, sources: Sequence[AgentMemory], content: str, at: datetime) -> Change:
        merged = AgentMemory(
            agent=self.agent,
            content=content,
            tags=known_tags([tag for source in sources for tag in source.tags]),
            created_at=min(source.created_at for source in sources),
            recorded_at=at,
            session_id=self.id,
        )
        db.session.add(merged)
        db.session.flush()
        return Change(merged.id, None, merged.image())

    def _count_result(self, result: AgentMemory, ceiling_tokens: int) -> None:
        db.session.add(
            SessionEntry(
                session_id=self.id,
                memory_id=result.id,
                ceiling_tokens=ceiling_tokens,
                counting_tokens=counting_tokens(ceiling_tokens, result.token_estimate),
                shown_digest=result.state_digest,
                is_merge_result=True,
            )
        )

    def _count_mutation(self, figure: str, amount: int, at: datetime) -> None:
        self.mutation_count += 1
        self._count(figure, amount)
        self.trip_breaker(at)

    def _count(self, figure: str, amount: int) -> None:
        self.stats = {**self.stats, figure: self.stats[figure] + amount}

    def _show(self, memories: Iterable[AgentMemory]) -> None:
        shown = {memory.id: memory for memory in memories}
        for memory_id, entry in self._entries(shown).items():
            entry.shown_digest = shown[memory_id].state_digest

    def _entries(self, ids: Iterable[int] | None = None) -> dict[int, SessionEntry]:
        entries = select(SessionEntry).where(SessionEntry.session_id == self.id)
        if ids is not None:
            entries = entries.where(SessionEntry.memory_id.in_(list(ids)))
        return {entry.memory_id: entry for entry in db.session.scalars(entries)}


def _discarding(memories: Iterable[AgentMemory], at: datetime) -> list[Change]:
    images = [memory.image() for memory in memories]
    return [Change(image["id"], image, {**image, "discarded_at": iso(at)}) for image in images]


def _named(ids: Sequence[int], verb: str) -> str:
    if verb == "consolidate":
        return f"memories: {', '.join(str(id_) for id_ in ids)}"
    return f"memory #{ids[0]}"


def _undone(edits: Sequence[AuditLog], reason: str) -> str:
    """What the agent is told of a rollback: what would have gone, and that nothing did."""
    would = [
        f"{edit.data['operation']} {_first([f'#{id_}' for id_ in _touched(edit)], ', ')}"
        for edit in reversed(edits)
    ]
    return (
        f"My refinement session was undone as a whole: {reason}. It would have done: "
        f"{_first(would, '; ')}. All of it was undone; every memory stands as it did before."
    )


def _first(items: Sequence[str], separator: str) -> str:
    """The first of them, and how many more there are: a memory must hold what is told."""
    more = len(items) - _MOST_TOLD
    return separator.join([*items[:_MOST_TOLD], *([f"and {more} more"] if more > 0 else [])])


def _touched(edit: AuditLog) -> list[int]:
    return [memory["id"] for memory in edit.data["memories"] if memory["before"] is not None]
