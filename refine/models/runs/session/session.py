"""Refinement sessions: supervised runs in which an agent edits its own core memories."""

import uuid
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import CheckConstraint, Index, UniqueConstraint, func, or_, select, text

from refine import clock, settings
from refine.errors import Refused
from refine.extensions import Base, db
from refine.models.agent import Agent
from refine.models.ledger import AgentMemory, Change, change_memories
from refine.models.people import User
from refine.models.runs.log import log_after_commit
from refine.models.runs.run import LIVE
from refine.models.runs.session.entry import SessionEntry
from refine.models.runs.session.state import (
    CONSENTED_ENDS,
    ENDED,
    MAX_MUTATIONS,
    ROLLING_WINDOW,
    TRIGGERS,
    EndStatus,
    SessionState,
    Trigger,
)
from refine.rules.retention import removable_tokens, removable_under_floor

ERODED = "sessions of the last 30 days removed as much as is allowed"

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

    def __init__(self, session_id: uuid.UUID, status: str = "live") -> None:
        self.session_id = session_id
        super().__init__(f"the agent already has a live session, {status}: {session_id}")


class RefinementSession(SessionState, Base):
    """One session: queued, claimed, measured, ended.

    What happens in between is in ``duplicates``, ``editing`` and ``breaker``.
    """

    __table_args__ = (
        CheckConstraint(f"trigger IN {TRIGGERS}", name="trigger"),
        CheckConstraint(f"status IN {LIVE + ENDED}", name="status"),
        CheckConstraint("threshold > 0 AND threshold <= 1", name="threshold"),
        CheckConstraint(f"mutation_count BETWEEN 0 AND {MAX_MUTATIONS}", name="mutation_count"),
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

    # -- queueing and claiming -------------------------------------------------------------------

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
        """Add a queued session, recorded as ``refinement_queued``.

        SessionAlreadyLive if the agent has a live one. One whose worker was lost ends first.
        """
        at = at or clock.now()
        if (reason := agent.unavailable_reason(automatic=False)) is not None:
            raise Refused(f"{reason}, so no session can run")
        agent.lock()
        if (live := cls.live_of(agent)) is not None and not live.end_if_lost(at):
            raise SessionAlreadyLive(live.id, live.status)
        session = cls._add(
            agent,
            at,
            trigger=trigger,
            user_id=user.id if user is not None else None,
            threshold=agent.threshold,
            **fields,
        )
        agent.record(
            "refinement_queued",
            session_id=session.id,
            subject=("RefinementSession", session.id),
            data={"trigger": trigger},
            user=user,
            at=at,
        )
        return session

    def queue_again(self, at: datetime) -> "RefinementSession":
        """Queue the next attempt after this failed session."""
        return self.queue(
            self.agent,
            cast(Trigger, self.trigger),
            at=at,
            slot_at=self.slot_at,
            attempt=self.attempt + 1,
        )

    @classmethod
    def start(
        cls, agent: Agent, trigger: Trigger = "manual", *, at: datetime | None = None
    ) -> "RefinementSession":
        """Return a running session with its snapshot taken and all of its ledger shown.

        The caller commits.
        """
        session = cls.queue(agent, trigger, at=at)
        session.claim(at)
        session.take_snapshot()
        return session

    def _may_start(self, at: datetime) -> bool:
        if (reason := self.skip_reason(at)) is not None:
            self.finish("skipped", reason, at=at)
        return reason is None

    # -- what it is measured against -------------------------------------------------------------

    def take_snapshot(self, shown: Collection[int] | None = None) -> None:
        """Fix what the session is measured against: entries, mass, and what it may remove.

        ``shown`` are the ids of the memories that the agent is shown; None: all.
        """
        current = self.agent.ledger.core().execution_options(populate_existing=True)
        ledger = db.session.scalars(current).all()
        SessionEntry.add_all(self.id, ledger, shown)
        self.memories_before = len(ledger)
        self.mass_before = sum(memory.token_estimate for memory in ledger)
        self.threshold = self.agent.threshold
        self.removable_tokens = self.removable_now(self.agent)
        db.session.flush()

    @classmethod
    def removed_recently(
        cls, agent: Agent, at: datetime | None = None, *, window: timedelta = ROLLING_WINDOW
    ) -> int:
        """Return how many tokens sessions of the last 30 days removed, without undone sessions."""
        since = (at or clock.now()) - window
        removed = select(func.coalesce(func.sum(cls.removed_tokens), 0)).where(
            cls.agent_id == agent.id, cls.ended_at > since, cls.undone_at.is_(None)
        )
        return int(db.session.scalar(removed) or 0)

    @classmethod
    def removable_now(cls, agent: Agent, at: datetime | None = None) -> int:
        """Return how many tokens a session of the agent could remove if it began now."""
        return removable_tokens(
            agent.core_token_usage,
            threshold=agent.threshold,
            rolling_floor=settings.current().rolling_floor,
            removed_recently=cls.removed_recently(agent, at),
        )

    @classmethod
    def is_eroded(cls, agent: Agent, at: datetime | None = None) -> bool:
        """Tell whether the floor over 30 days leaves nothing for a session to remove."""
        floor = settings.current().rolling_floor
        removed = cls.removed_recently(agent, at)
        return removable_under_floor(agent.core_token_usage, floor, removed) <= 0

    # -- ending ----------------------------------------------------------------------------------

    def request_stop(self, user: User | None = None, at: datetime | None = None) -> None:
        """Ask the session to stop before its next step; a queued one ends ``skipped`` at once."""
        at = at or clock.now()
        self.lock()
        if not self.is_live:
            raise Refused(f"the session has already ended ({self.status})")
        if not self.is_stop_requested:
            self.stop_requested_at = at
            self.stop_requested_by_id = user.id if user is not None else None
        if self.status == "queued":
            self.finish("skipped", "stopped while it was queued", user=user, at=at)

    def give_up(
        self, reason: str, error_kind: str | None = None, *, at: datetime | None = None
    ) -> None:
        """End after a failure: ``incomplete`` if something was changed, else ``failed``."""
        status: EndStatus = "incomplete" if self.mutation_count else "failed"
        self.finish(status, reason, error_kind=error_kind, at=at)

    def finish(
        self,
        status: EndStatus,
        reason: str,
        *,
        error_kind: str | None = None,
        summary: str | None = None,
        changes: Collection[Change] = (),
        data: dict[str, Any] | None = None,
        journal: str | None = None,
        user: User | None = None,
        at: datetime | None = None,
    ) -> None:
        """End with a status and a record of measured figures; tell an agent that consented.

        ``changes`` are the reversals of a rollback, which become part of the same record; the
        figures are those after them. ``user`` is who asked for the end, if anybody did. For an
        agent that was erased meanwhile, only figures are recorded, and no journal memory is added.
        """
        at = at or clock.now()
        self.status, self.end_reason, self.error_kind = status, reason, error_kind
        self.lease_token, self.ended_at = None, at
        self._measure_end(changes)
        if status in CONSENTED_ENDS:
            self.agent.last_refinement_at = at
        record: dict[str, Any] = {
            "session_id": self.id,
            "subject": ("RefinementSession", self.id),
            "data": {**self.measured(), **(data or {})},
            "user": user,
            "at": at,
        }
        if self.agent.is_erased:
            self.agent.record(_END_ACTION[status], **record)
        else:
            if status in CONSENTED_ENDS:
                changes = [*changes, self._end_note(reason, summary, journal, at)]
            sealed = {"summary": self.summary, "consent_reply": self.consent_reply}
            change_memories(
                _END_ACTION[status], list(changes), agent=self.agent, sealed=sealed, **record
            )
        log_after_commit("session ended", self.facts())

    def add_journal_memory(self, content: str, at: datetime) -> Change:
        """Add a journal memory for the agent; return the change, for the caller to record."""
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

    def _end_note(
        self, reason: str, summary: str | None, journal: str | None, at: datetime
    ) -> Change:
        """Store the summary, and tell the agent the outcome in a journal memory."""
        self.summary = f"{self.figures()} {summary or ''}".strip()
        ended_early = f" It ended early: {reason}. What was done stays."
        told = self.summary if self.status == "completed" else f"{self.summary}{ended_early}"
        return self.add_journal_memory(journal or told, at)

    def _measure_end(self, changes: Collection[Change]) -> None:
        """Measure the ledger as it is once ``changes`` are made."""
        count, mass = self.agent.ledger.figures()
        self.memories_after = count + sum(change.count_difference for change in changes)
        self.mass_after = mass + sum(change.mass_difference for change in changes)

    # -- finding ---------------------------------------------------------------------------------

    @classmethod
    def live_of(cls, agent: Agent) -> "RefinementSession | None":
        """Return the agent's queued or running session."""
        return db.session.scalar(
            select(cls)
            .where(cls.agent_id == agent.id, cls.status.in_(LIVE))
            .execution_options(populate_existing=True)
        )

    @classmethod
    def latest_of(cls, agent: Agent) -> "RefinementSession | None":
        """Return the agent's latest session, whatever its status."""
        return db.session.scalar(
            select(cls).where(cls.agent_id == agent.id).order_by(cls.created_at.desc()).limit(1)
        )

    @classmethod
    def last_of(cls, agent: Agent, *, before: datetime) -> "RefinementSession | None":
        """Return the agent's last session before that time that it consented to."""
        ran = select(cls).where(
            cls.agent_id == agent.id, cls.status.in_(CONSENTED_ENDS), cls.created_at < before
        )
        return db.session.scalar(ran.order_by(cls.created_at.desc()).limit(1))

    @classmethod
    def last_with_effect(cls, agent: Agent) -> "RefinementSession | None":
        """Return the last session that the agent consented to, or that removed duplicates."""
        removed_duplicates = cls.status.in_(ENDED) & (cls.duplicates_removed > 0)
        return db.session.scalar(
            select(cls)
            .where(
                cls.agent_id == agent.id, or_(cls.status.in_(CONSENTED_ENDS), removed_duplicates)
            )
            .order_by(cls.created_at.desc())
            .limit(1)
        )
