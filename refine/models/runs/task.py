"""Memory tasks: reflections on the journal, extractions from conversations, searches for a person
(a data subject) who asks that what is kept about them be erased.
"""

import json
import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, cast, get_args

from sqlalchemy import (
    CheckConstraint,
    ColumnElement,
    Index,
    Select,
    Text,
    and_,
    case,
    exists,
    func,
    or_,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Mapped, aliased, mapped_column

from refine import clock
from refine.errors import InvalidValue, Refused, TooMany
from refine.extensions import Base, Instant, UtcDateTime, db
from refine.models.agent import Agent, eligibility
from refine.models.columns import Count, Sealed
from refine.models.keys import SealedText
from refine.models.ledger.image import Change
from refine.models.ledger.memory import AgentMemory, change_memories, content_hash
from refine.models.people import Account
from refine.models.runs.run import LIVE, RetriableRun, errors_index, log_after_commit
from refine.rules.content import bounded_text, known_tags, memory_content, storable_or_none
from refine.rules.conversation import valid_conversation
from refine.rules.pacing import conversation_pause, retry_pause
from refine.rules.quantities import in_days

Kind = Literal["reflection", "extraction", "data_subject"]
KINDS: tuple[Kind, ...] = get_args(Kind)

Trigger = Literal["daily", "api", "cli"]
TRIGGERS: tuple[Trigger, ...] = get_args(Trigger)

EndStatus = Literal["completed", "incomplete", "skipped", "failed"]
ENDED: tuple[EndStatus, ...] = get_args(EndStatus)

# How long a task may wait before it ends unread.
TASK_LAPSES_AFTER: dict[str, timedelta] = {
    "reflection": timedelta(days=1),
    **dict.fromkeys(("extraction", "data_subject"), timedelta(days=7)),
}
# In each account's own time zone.
REFLECTION_SCHEDULE = "0 3 * * *"

# How many memories one task may promote or save.
MAX_KEPT: dict[str, int] = {"reflection": 10, "extraction": 20, "data_subject": 0}
# How many conversations of one agent may wait.
MAX_WAITING = 100
# How long a conversation waits before its agent, unavailable now, is checked again.
_RECHECK_AFTER = timedelta(hours=1)

# How often an agent may be asked to search for somebody, and with how many characters.
SEARCHES_EVERY = timedelta(days=1)
MAX_WORDS_CHARACTERS = 500

_END_ACTION = {
    "reflection": "memory_reflection_ended",
    "extraction": "memory_extraction_ended",
    "data_subject": "data_subject_search_ended",
}


class ReflectionAlreadyLive(Refused):
    """The agent has a queued or running reflection."""


class MemoryTask(RetriableRun, Base):
    __tablename__ = "memory_tasks"
    __table_args__ = (
        CheckConstraint(f"kind IN {KINDS}", name="kind"),
        CheckConstraint(f"trigger IN {TRIGGERS}", name="trigger"),
        CheckConstraint(f"status IN {LIVE + ENDED}", name="status"),
        CheckConstraint(
            f"memories_kept BETWEEN 0 AND {max(MAX_KEPT.values())}", name="memories_kept"
        ),
        CheckConstraint("(status = 'running') = (lease_token IS NOT NULL)", name="lease"),
        CheckConstraint(f"(status IN {ENDED}) = (ended_at IS NOT NULL)", name="ended"),
        # a conversation, or the words to search for, are stored only until their task ends
        CheckConstraint(
            f"(conversation IS NOT NULL) = (kind <> 'reflection' AND status IN {LIVE})",
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
        errors_index("memory_tasks"),
    )

    kind: Mapped[str] = mapped_column(Text)
    sealed_conversation: Mapped[Sealed | None] = mapped_column("conversation", deferred=True)
    memories_kept: Mapped[Count]
    # how many lines at the end of a conversation another attempt still has to read
    lines_unread: Mapped[Count]
    due_at: Mapped[datetime] = mapped_column(default=clock.now, server_default=text("now()"))

    conversation = SealedText(storable_or_none)

    named_in_logs = "task_id"

    # -- queueing --------------------------------------------------------------------------------

    @classmethod
    def reflect(
        cls,
        agent: Agent,
        trigger: Trigger,
        *,
        slot_at: datetime | None = None,
        at: datetime | None = None,
    ) -> "MemoryTask":
        """Queue a reflection; ReflectionAlreadyLive."""
        at = at or clock.now()
        _refuse_unavailable(agent)
        agent.lock()
        live = select(cls).where(cls.agent_id == agent.id, cls.kind == "reflection", cls.is_live)
        for task in db.session.scalars(live.execution_options(populate_existing=True)).all():
            task.end_if_lost(at)
            if task.is_live:
                already = f"a reflection of this agent is already waiting or running: {task.id}"
                raise ReflectionAlreadyLive(already)
        return cls._add(agent, at, kind="reflection", trigger=trigger, due_at=at, slot_at=slot_at)

    @classmethod
    def reflect_daily(
        cls, agents: Iterable[Agent], slot_at: datetime, at: datetime
    ) -> list["MemoryTask"]:
        """Queue daily reflections; the agents are locked, available, without live ones."""
        fields = {"kind": "reflection", "trigger": "daily", "due_at": at, "slot_at": slot_at}
        return cls._add_all([cls._new(agent, at, **fields) for agent in agents])

    @classmethod
    def extract(
        cls, agent: Agent, conversation: object, *, at: datetime | None = None
    ) -> "MemoryTask":
        """Queue an extraction of messages, sealed until it ends; InvalidValue, Refused, TooMany."""
        # by the clock that a lapse hangs on, too
        created_at = at or func.clock_timestamp(type_=UtcDateTime())
        at = at or clock.now()
        messages = valid_conversation(conversation, now=at)
        _refuse_unavailable(agent)
        agent.lock()
        if cls.conversations_waiting(agent) >= MAX_WAITING:
            raise TooMany(
                f"{MAX_WAITING} conversations of {agent.name} are waiting already",
                retry_after_seconds=600,
            )
        fields = {"kind": "extraction", "trigger": "api", "due_at": at, "created_at": created_at}
        kept = json.dumps(messages, ensure_ascii=False)
        return cls._add(agent, at, conversation=kept, **fields)

    @classmethod
    def search_for(cls, agent: Agent, words: object, *, at: datetime | None = None) -> "MemoryTask":
        """Queue a search for a person; InvalidValue, Refused. On the server alone: whoever sees an
        agent's figures must not choose the words, or the figures would answer guesses.
        """
        at, limit = at or clock.now(), MAX_WORDS_CHARACTERS
        words = bounded_text(words, field="words", limit=limit)
        _refuse_unavailable(agent)
        agent.lock()
        mine = cls.agent_id == agent.id, cls.kind == "data_subject"
        lately = select(cls.id).where(*mine, cls.created_at > at - SEARCHES_EVERY)
        if db.session.scalar(lately.limit(1)) is not None:
            raise Refused(f"{agent.name} was asked within a day to search for somebody; try later")
        fields = {"kind": "data_subject", "trigger": "cli", "due_at": at, "created_at": at}
        task = cls._add(agent, at, conversation=words, **fields)
        about = {"subject": task, "data": {"by": "command line"}}
        agent.record("data_subject_requested", **about, at=at)
        return task

    @classmethod
    def conversations_waiting(cls, agent: Agent) -> int:
        waiting = select(func.count()).where(
            cls.agent_id == agent.id, cls.kind == "extraction", cls.is_waiting
        )
        return db.session.scalars(waiting).one()

    def messages(self) -> list[dict[str, Any]]:
        return cast(list[dict[str, Any]], json.loads(self.conversation or "[]"))

    # -- starting --------------------------------------------------------------------------------

    @property
    def is_waiting_for_retry(self) -> bool:
        return self.status == "queued" and self.attempt > 1

    @property
    def is_automatic(self) -> bool:
        """Whether the task obeys pauses and the cost cap: all but those of ``refine reflect``."""
        return self.trigger != "cli"

    def _may_start(self, at: datetime) -> bool:
        if self.due_at > at or self.end_if_lapsed(at):
            return False
        if (reason := self.skip_reason(at)) is not None:
            if self.kind == "reflection":
                self.finish("skipped", reason, at=at)
            else:
                self.due_at = at + _RECHECK_AFTER
            return False
        if self.held_of(self.agent):
            self.due_at = at
            return False
        self.end_reason = self.error_kind = None
        self.tool_calls = 0  # their limit is that of one attempt
        return True

    # -- ending ----------------------------------------------------------------------------------

    @classmethod
    def lapsed_by(cls, at: datetime) -> ColumnElement[bool]:
        """Match lapsed tasks by the database's clock too, so that a wrong one deletes nothing."""
        by_both = func.least(at, func.clock_timestamp(type_=UtcDateTime()))
        span = case(*((cls.kind == kind, span) for kind, span in TASK_LAPSES_AFTER.items()))
        return and_(cls.is_waiting, cls.created_at <= by_both - span)

    def finish(
        self,
        status: EndStatus,
        reason: str | None = None,
        *,
        error_kind: str | None = None,
        at: datetime | None = None,
    ) -> None:
        """End the locked task with a record of figures, and delete the conversation."""
        at = at or clock.now()
        self.status, self.end_reason, self.error_kind = status, reason, error_kind
        self.lease_token = None
        self.sealed_conversation, self.ended_at = None, at
        self.agent.record(
            _END_ACTION[self.kind],
            subject=self,
            data=self.measured(),
            at=at,
        )
        log_after_commit("memory task ended", self.facts())

    def give_up(
        self, reason: str, error_kind: str | None = None, *, at: datetime | None = None
    ) -> None:
        """Retry later; end if something was kept, on request, or after too many attempts."""
        at = at or clock.now()
        pause = retry_pause(self.attempt) if self.is_automatic else None
        if self.kind != "reflection":
            pause = conversation_pause(self.attempt)
        if self.memories_kept and not self.lines_unread:
            self.finish("incomplete", reason, error_kind=error_kind, at=at)
        elif pause is None:
            self.finish("failed", reason, error_kind=error_kind, at=at)
        else:
            self.status, self.end_reason, self.error_kind = "queued", reason, error_kind
            self.lease_token = None
            self.attempt += 1
            self.due_at = at + pause
            log_after_commit("memory task put off", self.facts())

    def hand_back(self, reason: str, *, at: datetime | None = None) -> None:
        """Retry without a pause, if it is to be retried at all."""
        at = at or clock.now()
        super().hand_back(reason, at=at)
        if self.is_waiting:
            self.due_at = at

    def end_if_lapsed(self, at: datetime | None = None) -> bool:
        at = at or clock.now()
        self.lock()
        mine = select(MemoryTask.id).where(MemoryTask.id == self.id, self.lapsed_by(at))
        if has_lapsed := db.session.scalar(mine) is not None:
            waited = in_days(TASK_LAPSES_AFTER[self.kind])
            last = f"; the last attempt: {self.end_reason}" if self.end_reason else ""
            kind = self.error_kind or "lapsed"
            self.finish("skipped", f"it waited for {waited}{last}", error_kind=kind, at=at)
        return has_lapsed

    def measured(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "trigger": self.trigger,
            "status": self.status,
            "reason": self.end_reason,
            "error_kind": self.error_kind,
            "attempt": self.attempt,
            "memories_kept": self.memories_kept,
            **self.usage(),
            "started_at": clock.iso(self.started_at),
        }


def _refuse_unavailable(agent: Agent) -> None:
    if (reason := eligibility.unavailable_reason(agent, automatic=False)) is not None:
        raise Refused(f"{reason}, so its model is not asked")


# -- what a task that its caller holds (``MemoryTask.held``) keeps ---------------------------------


def journal_entries(task: MemoryTask) -> Select[AgentMemory]:
    """Select the week's journal before the task began, without Refine's notes."""
    began = task.started_at or task.created_at
    return task.agent.ledger.journal(began).where(
        AgentMemory.recorded_at <= began, ~AgentMemory.is_note()
    )


def promote(task: MemoryTask, ids: Sequence[int]) -> tuple[list[int], dict[int, int]]:
    """Promote entries; return their ids, and repeated core memories by entry id. InvalidValue."""
    chosen = _entries(task, ids)
    cores = task.agent.ledger.select_core_with({entry.content_hash for entry in chosen})
    kept = list(db.session.scalars(cores.order_by(AgentMemory.id)))
    promoted: list[AgentMemory] = []
    repeating: dict[int, int] = {}
    for entry in chosen:
        same = (
            memory.id
            for memory in (*kept, *promoted)
            if memory.content_hash == entry.content_hash and set(memory.tags) >= set(entry.tags)
        )
        if (repeated := next(same, None)) is not None:
            repeating[entry.id] = repeated
        else:
            promoted.append(entry)
    _count_or_refuse(task, len(promoted))
    for entry in promoted:
        before = entry.image()
        change_memories(
            "memory_promoted",
            [Change(entry.id, before, {**before, "memory_type": "core"})],
            agent=task.agent,
            subject=entry,
            data=_task_data(task, "promote"),
        )
    return [entry.id for entry in promoted], repeating


def save(task: MemoryTask, content: object, tags: object = ()) -> tuple[AgentMemory, bool]:
    """Save a journal memory; return it, and whether an exact duplicate with its tags existed."""
    at = clock.now()
    hashed = content_hash(memory_content(content), task.data_key())
    ledger, tags = task.agent.ledger, known_tags(tags)
    in_core = ledger.select_core_with([hashed], tags)
    in_journal = ledger.journal(at).where(
        AgentMemory.content_hash == hashed, AgentMemory.tags.contains(tags)
    )
    for same in (in_core, in_journal):
        if (existing := db.session.scalar(same.limit(1))) is not None:
            return existing, True
    _count_or_refuse(task, 1)
    return task.agent.ledger.remember(
        content, "journal", tags, at, data=_task_data(task, "extract")
    )


def _entries(task: MemoryTask, ids: Sequence[int]) -> list[AgentMemory]:
    AgentMemory.lock_rows(task.agent, ids)
    found = db.session.scalars(journal_entries(task).where(AgentMemory.id.in_(ids)))
    by_id = {entry.id: entry for entry in found}
    if unknown := [id_ for id_ in ids if id_ not in by_id]:
        raise InvalidValue(
            f"{_named(unknown)} not found: only the journal entries that you were shown can "
            "be promoted; nothing was done"
        )
    if locked := [id_ for id_ in ids if by_id[id_].constitutional]:
        raise InvalidValue(
            f"Cannot promote constitutional {_named(locked).lower()}; nothing was done"
        )
    return [by_id[id_] for id_ in ids]


def _count_or_refuse(task: MemoryTask, more: int) -> None:
    limit = MAX_KEPT[task.kind]
    if task.memories_kept + more > limit:
        raise InvalidValue(
            f"At most {limit} memories in one {task.kind}; "
            f"{limit - task.memories_kept} are left, and nothing was done"
        )
    task.memories_kept += more


def _task_data(task: MemoryTask, operation: str) -> dict[str, str]:
    return {"operation": operation, "task_id": str(task.id)}


def _named(ids: Sequence[int]) -> str:
    if len(ids) == 1:
        return f"Memory #{ids[0]}"
    return f"Memories {', '.join(f'#{id_}' for id_ in ids)}"


# -- which tasks are due ---------------------------------------------------------------------------


def reflecting_zones() -> Sequence[str]:
    zones = select(Account.time_zone).join(Agent, Agent.account_id == Account.id)
    return db.session.scalars(zones.where(Agent.reflects_daily).distinct()).all()


def due_for_reflection(time_zone: str, slot_at: datetime) -> Select[int]:
    """Select the zone's agents with new journal entries in the week before the slot."""
    mine = (MemoryTask.agent_id == Agent.id) & (MemoryTask.kind == "reflection")
    was_read = (
        exists()
        .where(
            mine,
            MemoryTask.status == "completed",
            MemoryTask.started_at >= AgentMemory.recorded_at,
        )
        # two levels down, SQLAlchemy does not find the agent by itself
        .correlate(Agent, AgentMemory)
    )
    written = exists().where(
        AgentMemory.agent_id == Agent.id,
        AgentMemory.is_shown_journal(slot_at),
        ~AgentMemory.is_note(),
        AgentMemory.recorded_at <= slot_at,
        ~was_read,
    )
    handled = exists().where(mine, or_(MemoryTask.slot_at >= slot_at, MemoryTask.is_live))
    return (
        select(Agent.id)
        .join(Account, Account.id == Agent.account_id)
        .where(
            Account.time_zone == time_zone,
            Agent.reflects_daily,
            eligibility.is_available(automatic=True),
            written,
            ~handled,
        )
    )


def due(limit: int, at: datetime) -> Sequence[uuid.UUID]:
    """Return the ids of the tasks that a worker may begin: the oldest of each agent."""
    by_hand = (MemoryTask.trigger == "cli") & eligibility.is_available(automatic=False)
    oldest = (
        select(MemoryTask.id)
        .join(Agent, Agent.id == MemoryTask.agent_id)
        .where(MemoryTask.is_waiting, MemoryTask.due_at <= at)
        .where(eligibility.is_available(automatic=True) | by_hand)
        .ext(distinct_on(MemoryTask.agent_id))
        .order_by(MemoryTask.agent_id, MemoryTask.created_at, MemoryTask.id)
    )
    other = aliased(MemoryTask)
    is_busy = exists().where(other.agent_id == MemoryTask.agent_id, other.is_held)
    waiting = MemoryTask.select_waiting(limit).where(MemoryTask.id.in_(oldest), ~is_busy)
    return db.session.scalars(waiting).all()


def lapsed(at: datetime) -> Select[int]:
    """Select the agents with a lapsed task, by id."""
    has_one = exists().where(MemoryTask.agent_id == Agent.id, MemoryTask.lapsed_by(at))
    return select(Agent.id).where(has_one)


def waiting_of(agent: Agent) -> Sequence[MemoryTask]:
    return db.session.scalars(
        select(MemoryTask)
        .where(MemoryTask.agent_id == agent.id, MemoryTask.is_waiting)
        .order_by(MemoryTask.created_at, MemoryTask.id)
        .execution_options(populate_existing=True)
    ).all()


def given_up_since(since: Instant) -> ColumnElement[bool]:
    """Match conversations that nobody read to the end, and that are gone."""
    return and_(
        MemoryTask.kind == "extraction",
        MemoryTask.status.in_(("failed", "skipped")),
        MemoryTask.has_ended_with_error(),
        MemoryTask.ended_at > since,
    )
