"""How tasks end: with a status, measured figures and a record, and without the conversation."""

from datetime import datetime
from typing import Any

from refine import clock
from refine.models.audit import AuditLog
from refine.models.image import iso
from refine.models.memory_task.columns import LAPSES_AFTER, EndStatus, TaskColumns
from refine.models.session.log import say_when_committed
from refine.rules.pacing import retry_pause

_ACTIONS = {"reflection": "memory_reflection_ended", "extraction": "memory_extraction_ended"}


class Ending(TaskColumns):
    """All ends, and another attempt. But for ``end_if_…`` each expects the row to be locked."""

    def finish(
        self,
        status: EndStatus,
        reason: str | None = None,
        *,
        error_kind: str | None = None,
        at: datetime | None = None,
    ) -> None:
        """End for good: from now on nothing of the conversation is there any more."""
        at = at or clock.now()
        self.status, self.end_reason, self.error_kind = status, reason, error_kind
        self.lease_token = self.dispatched_at = None
        self.sealed_conversation, self.ended_at = None, at
        AuditLog.record(
            _ACTIONS[self.kind],
            agent=self.agent,
            subject=("MemoryTask", self.id),
            data=self._measured(),
            at=at,
        )
        say_when_committed(self.facts(), "memory task ended")

    def give_up(
        self, reason: str, error_kind: str | None = None, *, at: datetime | None = None
    ) -> None:
        """After a failure, try again later; end where something was kept, or it failed too often.

        What somebody runs by hand is not tried again.
        """
        at = at or clock.now()
        pause = retry_pause(self.attempt)
        if self.memories_kept:
            self.finish("incomplete", reason, error_kind=error_kind, at=at)
        elif pause is None or self.trigger == "cli":
            self.finish("failed", reason, error_kind=error_kind, at=at)
        else:
            self.status, self.end_reason, self.error_kind = "queued", reason, error_kind
            self.lease_token = None
            self.attempt += 1
            self.put_off(at + pause)
            say_when_committed(self.facts(), "memory task put off")

    def put_off(self, due_at: datetime) -> None:
        """Leave it queued until then."""
        self.due_at, self.dispatched_at = due_at, None

    def end_if_lapsed(self, at: datetime | None = None) -> bool:
        """End a task that waited for longer than it may; tell whether it did."""
        at = at or clock.now()
        self.lock()
        has_lapsed = self.status == "queued" and self.created_at <= at - LAPSES_AFTER[self.kind]
        if has_lapsed:
            days = LAPSES_AFTER[self.kind].days
            waited = "a day" if days == 1 else f"{days} days"
            last = f"; the last attempt: {self.end_reason}" if self.end_reason else ""
            self.finish("skipped", f"it waited for {waited}{last}", error_kind="lapsed", at=at)
        return has_lapsed

    def facts(self) -> dict[str, Any]:
        """Return what a log line tells of the task: ids and figures."""
        lasted = (self.ended_at or self.due_at) - (self.started_at or self.due_at)
        return {
            "task_id": str(self.id),
            "agent_id": self.agent_id,
            "account_id": self.agent.account_id,
            "model_id": self.model_id,
            "seconds": round(max(0.0, lasted.total_seconds()), 3),
            **self._measured(),
        }

    def _measured(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "trigger": self.trigger,
            "status": self.status,
            "reason": self.end_reason,
            "error_kind": self.error_kind,
            "attempt": self.attempt,
            "memories_kept": self.memories_kept,
            "llm_calls": self.llm_calls,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "cost_usd": str(self.cost_usd),
            "started_at": iso(self.started_at),
        }
