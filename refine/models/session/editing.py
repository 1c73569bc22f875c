"""What an agent may do to its ledger in a session.

Every verb expects a session that is held (``RefinementSession.held``) and writes change, record
and figures in the caller's transaction; a refusal changes nothing.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from refine import clock
from refine.errors import Refused
from refine.extensions import db
from refine.models.image import Change, iso
from refine.models.memory import AgentMemory, change_memories, content_hash
from refine.models.session.breaker import Breaker, first_of
from refine.models.session.entry import SessionEntry
from refine.rules.content import MAX_SUMMARY_CHARACTERS, bounded_text, known_tags, memory_content
from refine.rules.retention import counting_tokens

MAX_MUTATIONS = 10


class EditRefused(Refused):
    """A rule forbids this edit; the message is written for the agent's model.

    ``memory`` is the memory as it now stands, where the refusal is that it has changed.
    """

    def __init__(self, message: str, memory: AgentMemory | None = None) -> None:
        self.memory = memory
        super().__init__(message)


class Editing(Breaker):
    """The actions of the tool ``refinement``."""

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
        self._refuse_copy(content, but=ids)
        merged = self._merged(sources, content, at)
        self._edit("consolidate", [*_discarding(sources, at), merged], merged.memory_id, at)
        entries = self.entries(source.id for source in sources)
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
        self._refuse_copy(content, but=[memory_id])
        self._edit(
            "update", [Change(memory_id, memory.image(), memory.rewritten(content))], memory_id, at
        )
        entry = self.entries([memory_id])[memory_id]
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
        self.entries([memory_id])[memory_id].counting_tokens = 0
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

    def complete(self, summary: str, at: datetime | None = None) -> None:
        """End as the agent asked, with measured figures before its own words.

        The breaker is checked once more: the session is rolled back instead where it trips.
        """
        summary = bounded_text(summary, field="summary", limit=MAX_SUMMARY_CHARACTERS)
        if not self.trip_breaker(at):
            self.finish("completed", "the agent completed it", summary=summary, at=at)

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

    def _refuse_copy(self, content: str, *, but: Collection[int]) -> None:
        """An exact copy would go as a duplicate before the next session, and count nowhere."""
        same = self.agent.memories("core").where(
            AgentMemory.content_hash == content_hash(content, self.data_key()),
            AgentMemory.id.not_in(but),
        )
        if (copied := db.session.scalar(same.limit(1))) is not None:
            raise EditRefused(
                f"Memory #{copied.id} already has exactly this content; delete what it makes "
                "redundant instead"
            )

    def _kept(self, ids: Collection[int]) -> list[AgentMemory]:
        found = AgentMemory.locked(self.agent, set(ids))
        kept = {
            id_
            for id_, memory in found.items()
            if memory.memory_type == "core" and not memory.discarded
        }
        if missing := [id_ for id_ in ids if id_ not in kept]:
            noun = "Memory" if len(missing) == 1 else "Memories"
            listed = first_of([f"#{id_}" for id_ in missing], ", ")
            raise EditRefused(f"{noun} {listed} not found; nothing was changed")
        return [found[id_] for id_ in dict.fromkeys(ids)]

    def _refuse_unseen(self, memories: Collection[AgentMemory]) -> None:
        """Nothing is changed that the agent does not see as it is."""
        entries = self.entries(memory.id for memory in memories)
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
        for memory_id, entry in self.entries(shown).items():
            entry.shown_digest = shown[memory_id].state_digest


def _discarding(memories: Iterable[AgentMemory], at: datetime) -> list[Change]:
    images = [memory.image() for memory in memories]
    return [Change(image["id"], image, {**image, "discarded_at": iso(at)}) for image in images]


def _named(ids: Sequence[int], verb: str) -> str:
    if verb == "consolidate":
        return f"memories: {', '.join(str(id_) for id_ in ids)}"
    return f"memory #{ids[0]}"
