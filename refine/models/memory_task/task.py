"""Memory tasks: supervised runs in which an agent keeps something, and changes nothing else."""

import json
import uuid
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import CheckConstraint, Index, func, select, text

from refine import clock
from refine.errors import Refused, TooMany
from refine.extensions import Base, db
from refine.models.agent import Agent
from refine.models.memory_task.columns import ENDED, KINDS, TRIGGERS, Trigger
from refine.models.memory_task.ending import Ending
from refine.models.memory_task.keeping import Keeping
from refine.models.memory_task.planning import Planning
from refine.models.memory_task.totals import Totals
from refine.models.run import LIVE
from refine.models.session import RefinementSession
from refine.rules.conversation import valid_conversation

# So many conversations of one agent may wait.
MAX_WAITING = 100
# How long a conversation waits whose agent may not be asked now.
_WAITS = timedelta(hours=1)


class ReflectionAlreadyLive(Refused):
    """The agent has a queued or running reflection; ``task_id`` is that one."""

    def __init__(self, task_id: uuid.UUID) -> None:
        self.task_id = task_id
        super().__init__(f"a reflection of this agent is waiting or running already: {task_id}")


class MemoryTask(Totals, Planning, Keeping, Ending, Base):
    """A reflection or an extraction; its capabilities are in the files beside this one."""

    __table_args__ = (
        CheckConstraint(f"kind IN {KINDS}", name="kind"),
        CheckConstraint(f"trigger IN {TRIGGERS}", name="trigger"),
        CheckConstraint(f"status IN {LIVE + ENDED}", name="status"),
        CheckConstraint("memories_kept BETWEEN 0 AND 20", name="memories_kept"),
        CheckConstraint("(status = 'running') = (lease_token IS NOT NULL)", name="lease"),
        CheckConstraint(f"(status IN {ENDED}) = (ended_at IS NOT NULL)", name="ended"),
        # a conversation is there as long as it is needed, and no longer
        CheckConstraint(
            f"(conversation IS NOT NULL) = (kind = 'extraction' AND status IN {LIVE})",
            name="conversation",
        ),
        Index(
            "uq_memory_tasks_running_agent",
            "agent_id",
            unique=True,
            postgresql_where=text("status = 'running'"),
        ),
        Index(
            "uq_memory_tasks_live_reflection",
            "agent_id",
            unique=True,
            postgresql_where=text(f"kind = 'reflection' AND status IN {LIVE}"),
        ),
        Index("ix_memory_tasks_agent_id_created_at", "agent_id", "created_at"),
        Index("ix_memory_tasks_status_created_at", "status", "created_at"),
    )

    @classmethod
    def reflect(
        cls,
        agent: Agent,
        trigger: Trigger,
        *,
        slot_at: datetime | None = None,
        at: datetime | None = None,
    ) -> "MemoryTask":
        """Add a queued reflection; ReflectionAlreadyLive if the agent has one."""
        at = at or clock.now()
        _check_active(agent)
        agent.lock()
        for task in cls.live_of(agent):
            if task.kind == "reflection":
                task.end_if_lost(at)
                if task.status in LIVE:
                    raise ReflectionAlreadyLive(task.id)
        return cls._queue(agent, "reflection", trigger, at, slot_at=slot_at)

    @classmethod
    def extract(
        cls, agent: Agent, conversation: object, *, at: datetime | None = None
    ) -> "MemoryTask":
        """Add a queued extraction of a finished conversation, which is kept sealed until it ends.

        ``conversation``: messages as ``rules.conversation`` takes them. Raises InvalidValue,
        Refused for an agent that is not active, TooMany where a hundred wait already.
        """
        at = at or clock.now()
        messages = valid_conversation(conversation, now=at)
        _check_active(agent)
        agent.lock()
        waiting = select(func.count()).where(
            cls.agent_id == agent.id, cls.kind == "extraction", cls.status == "queued"
        )
        if (db.session.scalar(waiting) or 0) >= MAX_WAITING:
            raise TooMany(
                f"{MAX_WAITING} conversations of {agent.name} are waiting already",
                retry_after_seconds=600,
            )
        kept = json.dumps(messages, ensure_ascii=False)
        return cls._queue(agent, "extraction", "api", at, conversation=kept)

    def claim(self, at: datetime | None = None) -> uuid.UUID | None:
        """Take the queued task over; return the lease, or None where it is not to be had now.

        The agent's model is read now. Where the agent may not be asked, a reflection ends
        ``skipped``, and a conversation waits.
        """
        at = at or clock.now()
        self.lock()
        if self.status != "queued" or self.due_at > at or self.end_if_lapsed(at):
            return None
        if (why_not := self._why_not_now(at)) is not None:
            if self.kind == "reflection":
                self.finish("skipped", why_not, at=at)
            else:
                self.put_off(at + _WAITS)
            return None
        if any(task.status == "running" for task in self.live_of(self.agent)):
            self.put_off(at)
            return None
        self.status, self.lease_token = "running", uuid.uuid4()
        self.model_id, self.started_at, self.heartbeat_at = self.agent.model_id, at, at
        self.end_reason = self.error_kind = None
        db.session.flush()
        return self.lease_token

    def messages(self) -> list[dict[str, Any]]:
        """Return the conversation's messages; none where there is no conversation (any more)."""
        return cast(list[dict[str, Any]], json.loads(self.conversation or "[]"))

    @classmethod
    def _queue(
        cls, agent: Agent, kind: str, trigger: Trigger, at: datetime, **fields: Any
    ) -> "MemoryTask":
        task = cls(
            id=uuid.uuid4(),
            agent=agent,
            kind=kind,
            trigger=trigger,
            model_id=agent.model_id,
            status="queued",
            created_at=at,
            due_at=at,
            **fields,
        )
        db.session.add(task)
        db.session.flush()
        return task

    def _why_not_now(self, at: datetime) -> str | None:
        if not self.agent.active:
            return "the agent is not active any more"
        if self.agent.is_erased:
            return "the agent was erased"
        if self.trigger == "cli":
            return None
        if self.agent.paused:
            return "the agent was paused"
        if self.agent.account.paused:
            return "its account was paused"
        if RefinementSession.is_cost_cap_reached(self.agent.account, at):
            return "the account's monthly cost cap is reached"
        return None


def _check_active(agent: Agent) -> None:
    if not agent.active:
        raise Refused(f"{agent.name} is not active: nothing is asked of it")
    if agent.is_erased:
        raise Refused(f"{agent.name} was erased: nothing is asked of it")
