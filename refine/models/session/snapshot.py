"""Before the agent is asked: duplicates go, and what the session is measured against is fixed."""

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import func, select

from refine import clock, settings
from refine.extensions import db
from refine.models.agent import Agent
from refine.models.image import Change, iso
from refine.models.memory import AgentMemory, change_memories
from refine.models.session.columns import ROLLING_WINDOW, SessionColumns
from refine.models.session.entry import SessionEntry
from refine.rules.content import known_tags
from refine.rules.retention import removable_tokens, removable_under_floor

ERODED = "sessions of the last 30 days removed as much as they may"


class Snapshot(SessionColumns):
    """The removal of exact duplicates, the snapshot, and the floor against slow erosion."""

    def deduplicate(self, at: datetime | None = None) -> int:
        """Discard exact duplicates of kept core memories; return how many.

        Of each group the locked ones stay, or where none is locked the oldest; the first of those
        that stay takes the tags of those that go. One record for each that goes.
        """
        locked = self.agent.memories("core").order_by(None).order_by(AgentMemory.id)
        kept = db.session.scalars(
            locked.with_for_update().execution_options(populate_existing=True)
        ).all()
        groups: dict[str, list[AgentMemory]] = defaultdict(list)
        for memory in sorted(kept, key=lambda memory: (memory.created_at, memory.id)):
            groups[memory.content_hash].append(memory)
        removed = 0
        for group in groups.values():
            staying = [memory for memory in group if memory.is_locked] or group[:1]
            for duplicate in group:
                if duplicate not in staying:
                    self._remove_duplicate(duplicate, staying[0], at or clock.now())
                    removed += 1
        self.duplicates_removed += removed
        return removed

    def take_snapshot(self, shown: Collection[int] | None = None) -> None:
        """Fix what the session is measured against: entries, mass, and what it may remove.

        ``shown`` holds the ids of the memories that the agent is shown; None means all.
        """
        as_it_stands = self.agent.memories("core").execution_options(populate_existing=True)
        ledger = db.session.scalars(as_it_stands).all()
        for memory in ledger:
            db.session.add(
                SessionEntry(
                    session_id=self.id,
                    memory_id=memory.id,
                    ceiling_tokens=memory.token_estimate,
                    counting_tokens=memory.token_estimate,
                    shown_digest=(
                        memory.state_digest if shown is None or memory.id in shown else None
                    ),
                )
            )
        self.memories_before = len(ledger)
        self.mass_before = sum(memory.token_estimate for memory in ledger)
        self.threshold = self.agent.threshold
        self.removable_tokens = self.removable_now(self.agent)
        db.session.flush()

    @classmethod
    def removed_recently(
        cls, agent: Agent, at: datetime | None = None, *, window: timedelta = ROLLING_WINDOW
    ) -> int:
        """Return how many tokens the loops of the last 30 days removed and nobody undid."""
        since = (at or clock.now()) - window
        removed = select(func.coalesce(func.sum(cls.removed_tokens), 0)).where(
            cls.agent_id == agent.id, cls.ended_at > since, cls.undone_at.is_(None)
        )
        return int(db.session.scalar(removed) or 0)

    @classmethod
    def removable_now(cls, agent: Agent, at: datetime | None = None) -> int:
        """Return how many tokens a session of the agent could remove, if it began now."""
        return removable_tokens(
            agent.core_token_usage,
            threshold=agent.threshold,
            rolling_floor=settings.current().rolling_floor,
            removed_recently=cls.removed_recently(agent, at),
        )

    @classmethod
    def is_eroded(cls, agent: Agent, at: datetime | None = None) -> bool:
        """Tell whether the floor over 30 days leaves nothing that a session could remove."""
        floor = settings.current().rolling_floor
        removed = cls.removed_recently(agent, at)
        return removable_under_floor(agent.core_token_usage, floor, removed) <= 0

    def _remove_duplicate(
        self, duplicate: AgentMemory, survivor: AgentMemory, at: datetime
    ) -> None:
        gone, kept = duplicate.image(), survivor.image()
        tags = known_tags([*kept["tags"], *gone["tags"]])
        changes = [Change(duplicate.id, gone, {**gone, "discarded_at": iso(at)})]
        if tags != kept["tags"]:
            changes.append(Change(survivor.id, kept, {**kept, "tags": tags}))
        change_memories(
            "memory_refinement_dedup",
            changes,
            agent=self.agent,
            session_id=self.id,
            subject=("AgentMemory", duplicate.id),
            data={"operation": "dedup", "duplicate_of": survivor.id},
            at=at,
        )
