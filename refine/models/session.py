"""Refinement sessions: supervised runs in which an agent edits its own core memories."""

import uuid
from collections import defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    Numeric,
    Text,
    UniqueConstraint,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column, relationship

from refine import clock, settings
from refine.errors import Refused
from refine.extensions import Base, db
from refine.models.agent import Agent
from refine.models.audit import AuditLog
from refine.models.columns import Count, Created, Sealed, SealedText, Usd, Uuid
from refine.models.editing import Editing
from refine.models.image import Change, iso
from refine.models.memory import AgentMemory, change_memories
from refine.models.session_entry import SessionEntry
from refine.models.user import User
from refine.rules.content import MAX_SUMMARY_CHARACTERS, bounded_text, known_tags, storable
from refine.rules.retention import removable_tokens, removable_under_floor
from refine.sealing import DataKey

Trigger = Literal["weekly", "over_budget", "manual", "api", "cli"]
TRIGGERS: tuple[Trigger, ...] = ("weekly", "over_budget", "manual", "api", "cli")
AUTOMATIC_TRIGGERS = ("weekly", "over_budget")

EndStatus = Literal["completed", "rolled_back", "incomplete", "declined", "skipped", "failed"]
LIVE = ("queued", "running")
ENDED = ("completed", "rolled_back", "incomplete", "declined", "skipped", "failed")

# What "slow erosion" looks back over.
ROLLING_WINDOW = timedelta(days=30)
# A worker's heart beats every 15 seconds; one that missed six beats is lost.
LOST_AFTER = timedelta(seconds=90)

_END_ACTION: dict[EndStatus, str] = {
    "completed": "memory_refinement_complete",
    "rolled_back": "memory_refinement_rollback",
    "incomplete": "memory_refinement_incomplete",
    "declined": "memory_refinement_declined",
    "skipped": "memory_refinement_skipped",
    "failed": "memory_refinement_failed",
}


class SessionAlreadyLive(Refused):
    """The agent has a queued or running session; ``session_id`` is that one."""

    def __init__(self, session_id: uuid.UUID) -> None:
        self.session_id = session_id
        super().__init__(f"the agent already has a live session: {session_id}")


class LeaseLost(Refused):
    """The session ended, or was given to another worker; ``status`` is what it is now."""

    def __init__(self, status: str) -> None:
        self.status = status
        super().__init__(f"the session is no longer held by this worker (it is {status})")


def _summary(field: str, value: object) -> str | None:
    return None if value is None else bounded_text(value, field=field, limit=12_000)


def _reply(field: str, value: object) -> str | None:
    return None if value is None else storable(value, field=field)


class RefinementSession(Editing, Base):
    """One session: its state, its limits, its figures. The edits are in ``Editing``."""

    __tablename__ = "refinement_sessions"
    __table_args__ = (
        CheckConstraint(f"trigger IN {TRIGGERS}", name="trigger"),
        CheckConstraint(f"status IN {LIVE + ENDED}", name="status"),
        CheckConstraint("threshold > 0 AND threshold <= 1", name="threshold"),
        CheckConstraint("mutation_count BETWEEN 0 AND 10", name="mutation_count"),
        CheckConstraint("removed_tokens BETWEEN 0 AND removable_tokens", name="removed_tokens"),
        CheckConstraint("(status = 'running') = (lease_token IS NOT NULL)", name="lease"),
        CheckConstraint(f"(status IN {ENDED}) = (ended_at IS NOT NULL)", name="ended"),
        Index(
            "uq_refinement_sessions_live_agent",
            "agent_id",
            unique=True,
            postgresql_where=text(f"status IN {LIVE}"),
        ),
        UniqueConstraint("agent_id", "slot_at", "attempt"),
        Index("ix_refinement_sessions_agent_id_created_at", "agent_id", "created_at"),
        Index("ix_refinement_sessions_status_created_at", "status", "created_at"),
    )

    id: Mapped[Uuid]
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    trigger: Mapped[str] = mapped_column(Text)
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    slot_at: Mapped[datetime | None]
    attempt: Mapped[int] = mapped_column(default=1, server_default=text("1"))
    status: Mapped[str] = mapped_column(Text, default="queued", server_default=text("'queued'"))
    end_reason: Mapped[str | None] = mapped_column(Text)
    error_kind: Mapped[str | None] = mapped_column(Text)

    model_id: Mapped[str] = mapped_column(Text)
    threshold: Mapped[Decimal] = mapped_column(Numeric(5, 4))
    mass_before: Mapped[int | None]
    mass_after: Mapped[int | None]
    memories_before: Mapped[int | None]
    memories_after: Mapped[int | None]
    duplicates_removed: Mapped[Count]
    removable_tokens: Mapped[Count]
    removed_tokens: Mapped[Count]
    mutation_count: Mapped[Count]
    stats: Mapped[dict[str, int]] = mapped_column(
        JSONB,
        default=lambda: {"consolidated": 0, "updated": 0, "deleted": 0, "protected": 0},
        server_default=text(
            """'{"consolidated": 0, "updated": 0, "deleted": 0, "protected": 0}'"""
        ),
    )

    turns: Mapped[Count]
    tool_calls: Mapped[Count]
    llm_calls: Mapped[Count]
    prompt_tokens: Mapped[Count]
    cached_tokens: Mapped[Count]
    completion_tokens: Mapped[Count]
    cost_usd: Mapped[Usd] = mapped_column(default=Decimal(0), server_default=text("0"))

    lease_token: Mapped[uuid.UUID | None]
    heartbeat_at: Mapped[datetime | None]
    stop_requested_at: Mapped[datetime | None]
    stop_requested_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    dispatched_at: Mapped[datetime | None]
    consented_at: Mapped[datetime | None]
    batch_through_id: Mapped[int | None] = mapped_column(BigInteger)
    prompt_version: Mapped[str | None] = mapped_column(Text)
    sealed_summary: Mapped[Sealed | None] = mapped_column("summary", deferred=True)
    sealed_consent_reply: Mapped[Sealed | None] = mapped_column("consent_reply", deferred=True)

    created_at: Mapped[Created]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    undone_at: Mapped[datetime | None]
    undone_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))

    agent: Mapped[Agent] = relationship()
    user: Mapped[User | None] = relationship(foreign_keys=[user_id])

    summary = SealedText(_summary)
    consent_reply = SealedText(_reply)

    def data_key(self) -> DataKey:
        """Return the key of the agent whose session this is."""
        return self.agent.data_key()

    # -- beginning --------------------------------------------------------------------------------

    @classmethod
    def queue(
        cls,
        agent: Agent,
        trigger: Trigger,
        *,
        user: User | None = None,
        at: datetime | None = None,
        **fields: Any,
    ) -> "RefinementSession":
        """Add a queued session for the agent; SessionAlreadyLive if it has a live one.

        A live session whose worker was lost is ended first.
        """
        at = at or clock.now()
        if not agent.active:
            raise Refused(f"{agent.name} is not active: no session runs for it")
        agent.lock()
        if (live := cls.live_of(agent)) is not None and not live.end_if_lost(at):
            raise SessionAlreadyLive(live.id)
        session = cls(
            id=uuid.uuid4(),
            agent=agent,
            trigger=trigger,
            user_id=user.id if user is not None else None,
            model_id=agent.model_id,
            threshold=agent.threshold,
            status="queued",
            created_at=at,
            **fields,
        )
        db.session.add(session)
        db.session.flush()
        session._record("refinement_queued", {"trigger": trigger}, user=user, at=at)
        return session

    @classmethod
    def start(
        cls, agent: Agent, trigger: Trigger = "manual", *, at: datetime | None = None
    ) -> "RefinementSession":
        """Return a running session with its snapshot taken, all of its ledger shown.

        The commit is the caller's.
        """
        session = cls.queue(agent, trigger, at=at)
        session.claim(at)
        session.take_snapshot()
        return session

    def claim(self, at: datetime | None = None) -> uuid.UUID | None:
        """Take the queued session over; return the lease, or None if it is not queued any more."""
        at = at or clock.now()
        lease_token = uuid.uuid4()
        claimed = db.session.execute(
            update(RefinementSession)
            .where(RefinementSession.id == self.id, RefinementSession.status == "queued")
            .values(status="running", lease_token=lease_token, started_at=at, heartbeat_at=at)
            .execution_options(synchronize_session=False)
            .returning(RefinementSession.id)
        ).scalar_one_or_none()
        db.session.refresh(self)
        return lease_token if claimed is not None else None

    @classmethod
    def held(cls, session_id: uuid.UUID, lease_token: uuid.UUID | None) -> "RefinementSession":
        """Return the running session, locked together with its agent, if the lease still holds.

        The lease is the caller's own copy. Raises LeaseLost where the session ended or is held by
        another; then this worker can change nothing more.
        """
        whose = select(cls.agent_id).where(cls.id == session_id).scalar_subquery()
        db.session.scalars(
            select(Agent)
            .where(Agent.id == whose)
            .with_for_update(key_share=True, of=Agent)
            .execution_options(populate_existing=True)
        ).one()
        held = db.session.scalar(
            select(cls)
            .where(cls.id == session_id, cls.lease_token == lease_token, cls.status == "running")
            .with_for_update(key_share=True)
            .execution_options(populate_existing=True)
        )
        if held is None:
            status = select(cls.status).where(cls.id == session_id)
            raise LeaseLost(db.session.scalars(status).one())
        return held

    @classmethod
    def live_of(cls, agent: Agent) -> "RefinementSession | None":
        """Return the agent's queued or running session."""
        return db.session.scalar(
            select(cls)
            .where(cls.agent_id == agent.id, cls.status.in_(LIVE))
            .execution_options(populate_existing=True)
        )

    # -- before the agent is asked ----------------------------------------------------------------

    def deduplicate(self, at: datetime | None = None) -> int:
        """Discard exact duplicates of kept core memories; return how many.

        Of each group the locked ones stay, or where none is locked the oldest; the first of those
        that stay takes the tags of those that go. One record for each that goes.
        """
        groups: dict[str, list[AgentMemory]] = defaultdict(list)
        for memory in db.session.scalars(self.agent.memories("core").with_for_update()):
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
        ledger = db.session.scalars(self.agent.memories("core")).all()
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
        self.removable_tokens = removable_tokens(
            self.mass_before,
            threshold=self.threshold,
            rolling_floor=settings.current().rolling_floor,
            removed_recently=self.removed_recently(self.agent),
        )
        db.session.flush()

    @classmethod
    def removed_recently(cls, agent: Agent, at: datetime | None = None) -> int:
        """Return how many tokens the loops of the last 30 days removed and nobody undid."""
        since = (at or clock.now()) - ROLLING_WINDOW
        removed = select(func.coalesce(func.sum(cls.removed_tokens), 0)).where(
            cls.agent_id == agent.id, cls.ended_at > since, cls.undone_at.is_(None)
        )
        return int(db.session.scalar(removed) or 0)

    @classmethod
    def is_eroded(cls, agent: Agent, at: datetime | None = None) -> bool:
        """Tell whether the floor over 30 days leaves nothing that a session could remove."""
        floor = settings.current().rolling_floor
        removed = cls.removed_recently(agent, at)
        return removable_under_floor(agent.core_token_usage, floor, removed) <= 0

    @classmethod
    def last_of(cls, agent: Agent, *, before: datetime | None = None) -> "RefinementSession | None":
        """Return the agent's last session that ran its loop."""
        ran = select(cls).where(
            cls.agent_id == agent.id,
            cls.status.in_(("completed", "rolled_back", "incomplete")),
        )
        if before is not None:
            ran = ran.where(cls.created_at < before)
        return db.session.scalar(ran.order_by(cls.created_at.desc()).limit(1))

    @classmethod
    def outcomes(cls, at: datetime | None = None) -> dict[str, int]:
        """Return how many sessions of the last 30 days there are in each status."""
        since = (at or clock.now()) - ROLLING_WINDOW
        counted = (
            select(cls.status, func.count()).where(cls.created_at > since).group_by(cls.status)
        )
        return dict(db.session.execute(counted).all())

    # -- ending -----------------------------------------------------------------------------------

    @property
    def is_live(self) -> bool:
        """Whether the session is queued or running."""
        return self.status in LIVE

    @property
    def is_stopping(self) -> bool:
        """Whether somebody asked the session to stop."""
        return self.stop_requested_at is not None

    def request_stop(self, user: User | None = None, at: datetime | None = None) -> None:
        """Ask the session to stop before its next step; a queued one ends at once, ``skipped``."""
        at = at or clock.now()
        self.agent.lock()
        db.session.refresh(self, with_for_update={"key_share": True})
        if not self.is_live:
            raise Refused(f"the session ended already ({self.status})")
        if not self.is_stopping:
            self.stop_requested_at = at
            self.stop_requested_by_id = user.id if user is not None else None
        if self.status == "queued":
            self.finish("skipped", "stopped while it was queued", at=at)

    def end_if_lost(self, at: datetime | None = None) -> bool:
        """End a running session whose worker gave no sign of life; tell whether it did."""
        at = at or clock.now()
        self.agent.lock()
        db.session.refresh(self, with_for_update={"key_share": True})
        lost = self.status == "running" and (self.heartbeat_at or at) < at - LOST_AFTER
        if lost:
            self.error_kind = "worker_lost"
            self.give_up("the worker was lost", at=at)
        return lost

    def give_up(self, reason: str, *, at: datetime | None = None) -> None:
        """End after a failure: ``incomplete`` if something was changed, else ``failed``."""
        self.finish("incomplete" if self.mutation_count else "failed", reason, at=at)

    def complete(self, summary: str, at: datetime | None = None) -> None:
        """End as the agent asked, with measured figures before its own words.

        The breaker is checked once more: the session is rolled back instead where it trips.
        """
        summary = bounded_text(summary, field="summary", limit=MAX_SUMMARY_CHARACTERS)
        if not self.trip_breaker(at):
            self.finish("completed", "the agent completed it", summary=summary, at=at)

    def finish(
        self,
        status: EndStatus,
        reason: str,
        *,
        summary: str | None = None,
        changes: Collection[Change] = (),
        data: dict[str, Any] | None = None,
        journal: str | None = None,
        at: datetime | None = None,
    ) -> None:
        """End with a status and an audit record of measured figures; after a loop, tell the agent.

        ``changes`` are reversals that go with the end (a rollback); the mass is measured as they
        leave it.
        """
        at = at or clock.now()
        self.status, self.end_reason, self.ended_at = status, reason, at
        self.lease_token = None
        self._measure(changes)
        after_loop = status in ("completed", "rolled_back", "incomplete")
        if after_loop:
            self.agent.last_refinement_at = at
            self.summary = f"{self.figures()} {summary or ''}".strip()
            told = journal or f"{self.summary} {_because(status, reason)}"
            changes = [*changes, self._journal(told, at)]
        change_memories(
            _END_ACTION[status],
            list(changes),
            agent=self.agent,
            session_id=self.id,
            subject=("RefinementSession", self.id),
            data={**self._measured(), **(data or {})},
            sealed={"summary": self.summary, "consent_reply": self.consent_reply},
            at=at,
        )

    def figures(self) -> str:
        """Return the measured outcome: ``Refinement session: 100 → 99 memories, …``."""
        saved = (self.mass_before or 0) - (self.mass_after or 0)
        done = ", ".join(f"{count} {verb}" for verb, count in self.stats.items() if count)
        if self.status == "rolled_back":
            done += ", all undone"
        return (
            f"Refinement session: {self.memories_before} → {self.memories_after} memories, "
            f"{abs(saved)} tokens {'saved' if saved >= 0 else 'added'} ({done or 'no changes'})."
        )

    # -- private ----------------------------------------------------------------------------------

    def _measure(self, changes: Collection[Change]) -> None:
        """Measure what the ledger holds once ``changes`` are made."""
        count, mass = self.agent.core_figures()
        self.memories_after = count + sum(change.count_difference for change in changes)
        self.mass_after = mass + sum(change.mass_difference for change in changes)

    def _measured(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "reason": self.end_reason,
            "trigger": self.trigger,
            "mass_before": self.mass_before,
            "mass_after": self.mass_after,
            "memories_before": self.memories_before,
            "memories_after": self.memories_after,
            "duplicates_removed": self.duplicates_removed,
            "threshold": str(self.threshold),
            "removable_tokens": self.removable_tokens,
            "removed_tokens": self.removed_tokens,
            "mutation_count": self.mutation_count,
            "stats": dict(self.stats),
            "llm_calls": self.llm_calls,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "cost_usd": str(self.cost_usd),
            "started_at": iso(self.started_at),
        }

    def _journal(self, content: str, at: datetime) -> Change:
        memory = AgentMemory(
            agent=self.agent,
            memory_type="journal",
            content=content,
            session_id=self.id,
            created_at=at,
        )
        db.session.add(memory)
        db.session.flush()
        return Change(memory.id, None, memory.image())

    def _remove_duplicate(
        self, duplicate: AgentMemory, survivor: AgentMemory, at: datetime
    ) -> None:
        gone, kept = duplicate.image(), survivor.image()
        tags = known_tags([*kept["tags"], *gone["tags"]])
        change_memories(
            "memory_refinement_dedup",
            [
                Change(duplicate.id, gone, {**gone, "discarded_at": iso(at)}),
                Change(survivor.id, kept, {**kept, "tags": tags}),
            ],
            agent=self.agent,
            session_id=self.id,
            subject=("AgentMemory", duplicate.id),
            data={"operation": "dedup", "duplicate_of": survivor.id},
            at=at,
        )

    def _record(self, action: str, data: dict[str, Any], **record: Any) -> None:
        AuditLog.record(
            action,
            agent=self.agent,
            session_id=self.id,
            subject=("RefinementSession", self.id),
            data=data,
            **record,
        )


def _because(status: EndStatus, reason: str) -> str:
    return "" if status == "completed" else f"It ended early: {reason}. What was done stays."
