"""How sessions end: with a status, measured figures, a record, and word to the agent."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from refine import clock
from refine.errors import Refused
from refine.extensions import db
from refine.models.audit import AuditLog
from refine.models.image import Change, iso
from refine.models.memory import AgentMemory, change_memories
from refine.models.run import LIVE
from refine.models.session.columns import AFTER_LOOP, EndStatus, SessionColumns
from refine.models.session.log import say_when_committed
from refine.models.user import User

_END_ACTION: dict[EndStatus, str] = {
    "completed": "memory_refinement_complete",
    "rolled_back": "memory_refinement_rollback",
    "incomplete": "memory_refinement_incomplete",
    "declined": "memory_refinement_declined",
    "skipped": "memory_refinement_skipped",
    "failed": "memory_refinement_failed",
}


class Ending(SessionColumns):
    """The ends of a session, but for the agent's own ``complete`` and the breaker's rollback."""

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
        self.lock()
        if not self.is_live:
            raise Refused(f"the session ended already ({self.status})")
        if not self.is_stopping:
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
        """End with a status and an audit record of measured figures; after a loop, tell the agent.

        ``changes`` are reversals that go with the end (a rollback); the mass is measured as they
        leave it. ``user``: who asked for the end, if somebody did. Of an agent that was erased
        meanwhile the figures are left to record, and there is nobody to tell.
        """
        at = at or clock.now()
        self.status, self.end_reason, self.error_kind = status, reason, error_kind
        self.lease_token, self.ended_at = None, at
        self._measure(changes)
        if status in AFTER_LOOP:
            self.agent.last_refinement_at = at
        record: dict[str, Any] = {
            "agent": self.agent,
            "session_id": self.id,
            "subject": ("RefinementSession", self.id),
            "data": {**self._measured(), **(data or {})},
            "user": user,
            "at": at,
        }
        if self.agent.is_erased:
            AuditLog.record(_END_ACTION[status], **record)
        else:
            if status in AFTER_LOOP:
                changes = [*changes, self._told(reason, summary, journal, at)]
            sealed = {"summary": self.summary, "consent_reply": self.consent_reply}
            change_memories(_END_ACTION[status], list(changes), sealed=sealed, **record)
        say_when_committed(self.facts())

    def _told(self, reason: str, summary: str | None, journal: str | None, at: datetime) -> Change:
        """Keep the summary of a loop; return the journal memory that tells the agent of its end."""
        self.summary = f"{self.figures()} {summary or ''}".strip()
        return self.journal(journal or f"{self.summary} {_because(self.status, reason)}", at)

    @property
    def undoer(self) -> str:
        """Who undid the session, which was undone: a user, or by which way it was."""
        return self.undone_by.email if self.undone_by is not None else f"the {self.undone_through}"

    @property
    def undone_words(self) -> str:
        """When the session, which was undone, was so, and by whom."""
        return f"was undone on {self.undone_at:%Y-%m-%d at %H:%M} UTC by {self.undoer}"

    def facts(self) -> dict[str, Any]:
        """Return what a log line tells of the ended session: ids and figures."""
        lasted = (self.ended_at or self.created_at) - (self.started_at or self.created_at)
        return {
            "session_id": str(self.id),
            "agent_id": self.agent_id,
            "account_id": self.agent.account_id,
            "model_id": self.model_id,
            "attempt": self.attempt,
            "error_kind": self.error_kind,
            "tool_calls": self.tool_calls,
            "seconds": round(lasted.total_seconds(), 3),
            **self._measured(),
        }

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

    def journal(self, content: str, at: datetime) -> Change:
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


def _because(status: str, reason: str) -> str:
    return "" if status == "completed" else f"It ended early: {reason}. What was done stays."
