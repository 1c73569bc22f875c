"""Refinement sessions: supervised runs in which an agent edits its own core memories."""

import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Literal, NamedTuple, cast, get_args

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ColumnElement,
    ForeignKey,
    Index,
    Numeric,
    Text,
    UniqueConstraint,
    and_,
    case,
    delete,
    func,
    literal,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapped, mapped_column, relationship

from refine import clock, settings
from refine.errors import Refused, SealingError
from refine.extensions import Base, db
from refine.models.agent import Agent, eligibility
from refine.models.agent.eligibility import AutomaticTrigger
from refine.models.attested import Attested, ChainOwner
from refine.models.audit import AuditLog, Event
from refine.models.columns import USD_DECIMALS, Count, Sealed, Usd, in_ids
from refine.models.keys import SealedText
from refine.models.ledger.image import Change
from refine.models.ledger.ledger import removed_outside_sessions
from refine.models.ledger.memory import AgentMemory, change_memories
from refine.models.people import User
from refine.models.runs.run import LIVE, RetriableRun, errors_index, log_after_commit
from refine.models.runs.session.entry import SessionEntry
from refine.rules.content import (
    MAX_STORED_SUMMARY_CHARACTERS,
    bounded_text,
    reply_text,
    storable_or_none,
)
from refine.rules.pacing import is_effect, retry_pause
from refine.rules.prices import Usage
from refine.rules.quantities import MAX_LISTED, in_days, in_hours, plural
from refine.rules.retention import (
    THRESHOLD_DECIMALS,
    removable_tokens,
    removable_under_floor,
    removable_under_threshold,
    threshold_check,
)

Trigger = Literal["weekly", "over_budget", "manual", "api", "cli"]
TRIGGERS: tuple[Trigger, ...] = get_args(Trigger)
# Sessions that obey pauses and the cost cap.
AUTOMATIC_TRIGGERS: tuple[AutomaticTrigger, ...] = get_args(AutomaticTrigger)

EndStatus = Literal["completed", "rolled_back", "incomplete", "declined", "skipped", "failed"]
ENDED: tuple[EndStatus, ...] = get_args(EndStatus)
END_ACTION = {
    "completed": "memory_refinement_complete",
    **{status: f"memory_refinement_{status}" for status in ("incomplete", "declined", "failed")},
    "rolled_back": "memory_refinement_rollback",
    "skipped": "memory_refinement_skipped",
}
# Ends that require the agent's consent; after it, a session can also end ``failed``.
CONSENTED_ENDS = ("completed", "rolled_back", "incomplete")
# The ends of a session whose agent answered the consent question.
ANSWERED = (*CONSENTED_ENDS, "declined")

# How an undo was requested.
Channel = Literal["dashboard", "command line", "agent"]

# How many mutations a session may make.
MAX_MUTATIONS = 10

# How long after its page was asked for somebody counts as watching.
_WATCHED_FOR = timedelta(seconds=6)


class Operation(NamedTuple):
    """An edit of the loop: the name of its count in a session's stats, and whether it counts as a
    mutation.
    """

    stat: str
    is_mutation: bool = True


# A new operation is one more entry: stats, undo and rollback follow.
OPERATIONS = {
    "consolidate": Operation("consolidated"),
    "update": Operation("updated"),
    "delete": Operation("deleted"),
    "protect": Operation("protected", is_mutation=False),
}
# Stats also count, once they occur, ``retired``, ``overruled``, ``worn``, ``unread``,
# ``refused_…`` and, once it is undone, ``tokens_gone``: what it removed and is not back.
_NOTHING_DONE = dict.fromkeys((each.stat for each in OPERATIONS.values()), 0)
# The actions of all edits of the loop, and of mutations. Duplicates are removed before the loop,
# and stay removed after a rollback.
LOOP_EDITS = tuple(f"memory_refinement_{name}" for name in OPERATIONS)
MUTATIONS = tuple(
    f"memory_refinement_{name}" for name, each in OPERATIONS.items() if each.is_mutation
)

# The period that the floor against slow erosion looks back over.
ROLLING_WINDOW = timedelta(days=30)
ERODED = f"sessions of the last {in_days(ROLLING_WINDOW)} removed as much as is allowed"

# How often workers that are asked to stop may leave a session to others after its consent, and how
# long it waits for one.
MAX_HANDED_BACK = 2
TAKEN_UP_WITHIN = timedelta(hours=1)

# How far back the pauses of hints are counted.
_HINTED_SESSIONS = 50

_MEASURED = (
    *("status", "trigger", "mass_before", "mass_after", "memories_before", "memories_after"),
    *("duplicates_removed", "removable_tokens", "removed_tokens", "saved_tokens"),
    *("mutation_count", "details_lost"),
    *("reading_calls", "reading_prompt_tokens", "reading_completion_tokens"),
)


class Reversal(NamedTuple):
    """A rollback's changes, facts for its record, and a note for the agent."""

    changes: Sequence[Change] = ()
    data: Mapping[str, Any] = {}
    note: str | None = None


class SessionAlreadyLive(Refused):
    def __init__(self, session_id: uuid.UUID, status: str = "live") -> None:
        self.session_id = session_id
        super().__init__(f"the agent already has a live session, {status}: {session_id}")


class SessionRequest(NamedTuple):
    """A session to queue; with ``skip_reason`` it ends ``skipped`` at once."""

    agent: Agent
    trigger: Trigger
    slot_at: datetime | None = None
    attempt: int = 1
    skip_reason: str | None = None


def _summary(field: str, value: object) -> str:
    return bounded_text(value, field=field, limit=MAX_STORED_SUMMARY_CHARACTERS)


def _sealed(name: str) -> Any:
    return mapped_column(name, deferred=True, deferred_group="sealed")


def closing_note(session: "RefinementSession", rollback_note: str | None = None) -> str | None:
    """Return the journal note, if any: the outcome after a consent, removed duplicates always."""
    why = session.end_reason
    outcomes = {
        "completed": session.summary,
        "incomplete": f"{session.summary} It ended early: {why}. What was done stays.",
        "declined": "I declined a refinement session.",
        "skipped": f"A refinement session was skipped: {why}.",
    }
    failed = f"A refinement session failed: {why}."
    outcome = rollback_note or outcomes.get(session.status, failed)
    if session.duplicates_removed:
        return (
            f"{outcome} Exact duplicates among my core memories, removed unread at the start of "
            f"the session: {session.duplicates_removed}. One copy of each stays."
        )
    return outcome if session.status in CONSENTED_ENDS else None


class RefinementSession(RetriableRun, Attested, Base):
    __tablename__ = "refinement_sessions"
    __table_args__ = (
        CheckConstraint(f"trigger IN {TRIGGERS}", name="trigger"),
        CheckConstraint(f"status IN {LIVE + ENDED}", name="status"),
        CheckConstraint(threshold_check("threshold"), name="threshold"),
        CheckConstraint(f"mutation_count BETWEEN 0 AND {MAX_MUTATIONS}", name="mutation_count"),
        CheckConstraint("details_lost >= 0", name="details_lost"),
        CheckConstraint("removed_tokens BETWEEN 0 AND removable_tokens", name="removed_tokens"),
        CheckConstraint("(status = 'running') = (lease_token IS NOT NULL)", name="lease"),
        CheckConstraint(f"(status IN {ENDED}) = (ended_at IS NOT NULL)", name="ended"),
        CheckConstraint(f"handed_back BETWEEN 0 AND {MAX_HANDED_BACK}", name="handed_back"),
        # what was said is stored only until another worker goes on, or the session ends
        CheckConstraint(f"conversation IS NULL OR status IN {LIVE}", name="conversation"),
        Index(
            "uq_refinement_sessions_live_agent",
            "agent_id",
            unique=True,
            postgresql_where=text(f"status IN {LIVE}"),
        ),
        UniqueConstraint("agent_id", "slot_at", "attempt"),
        Index("ix_refinement_sessions_agent_id_created_at", "agent_id", "created_at"),
        Index("ix_refinement_sessions_status_created_at", "status", "created_at"),
        Index("ix_refinement_sessions_created_at", text("created_at DESC"), "id"),
        errors_index("refinement_sessions"),
    )

    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    threshold: Mapped[Decimal] = mapped_column(Numeric(THRESHOLD_DECIMALS + 1, THRESHOLD_DECIMALS))
    mass_before: Mapped[int | None]
    mass_after: Mapped[int | None]
    memories_before: Mapped[int | None]
    memories_after: Mapped[int | None]
    # how many of them the agent was shown; NULL before the snapshot
    shown_memories: Mapped[int | None]
    duplicates_removed: Mapped[Count]
    removable_tokens: Mapped[Count]
    removed_tokens: Mapped[Count]
    # by how much the mass is smaller, exact duplicates included; below 0 if edits added to it
    saved_tokens: Mapped[Count]
    mutation_count: Mapped[Count]
    details_lost: Mapped[Count]
    stats: Mapped[dict[str, int]] = mapped_column(
        JSONB, default=lambda: dict(_NOTHING_DONE), server_default=text("'{}'")
    )

    turns: Mapped[Count]
    # the ids of alike memories that its agent was told to look at
    hints: Mapped[list[list[int]]] = mapped_column(JSONB, default=list, server_default=text("'[]'"))
    # the edits that were refused because of what memories say: ``cause`` and ``ids`` of each
    refused: Mapped[list[dict[str, Any]]] = mapped_column(
        JSONB, default=list, server_default=text("'[]'")
    )
    # the part of all calls, tokens and costs that second readings took
    reading_calls: Mapped[Count]
    reading_prompt_tokens: Mapped[Count]
    reading_completion_tokens: Mapped[Count]
    reading_cost_usd: Mapped[Usd] = mapped_column(default=Decimal(0), server_default=text("0"))
    stop_requested_at: Mapped[datetime | None]
    stop_requested_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    consented_at: Mapped[datetime | None]
    batch_through_id: Mapped[int | None] = mapped_column(BigInteger)
    # how often a worker left it to another one after the consent, and when it last did
    handed_back: Mapped[Count]
    handed_back_at: Mapped[datetime | None]
    sealed_conversation: Mapped[Sealed | None] = mapped_column("conversation", deferred=True)
    sealed_summary: Mapped[Sealed | None] = _sealed("summary")
    sealed_consent_reply: Mapped[Sealed | None] = _sealed("consent_reply")

    undone_at: Mapped[datetime | None]
    undone_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    undone_through: Mapped[str | None] = mapped_column(Text)

    # when its page was last asked for, of a rehearsal
    watched_at: Mapped[datetime | None]

    user: Mapped[User | None] = relationship(foreign_keys=user_id)
    stop_requested_by: Mapped[User | None] = relationship(foreign_keys=stop_requested_by_id)
    undone_by: Mapped[User | None] = relationship(foreign_keys=undone_by_id)

    summary = SealedText(_summary)
    consent_reply = SealedText(reply_text)
    conversation = SealedText(storable_or_none)

    # its figures decide what it may still remove and, once it has ended, what later sessions may
    unsigned: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("sealed_summary", "sealed_consent_reply", "sealed_conversation"),
        "sealed: nobody can write it without the agent's key",
    ) | {"watched_at": "sets the pace of a rehearsal, and nothing else"}
    named_in_logs = "session_id"
    # it changes with each step, so records keep only the digest of its end
    statuses_without_records = LIVE

    @property
    def chain_owner(self) -> ChainOwner:
        return ChainOwner(agent_id=self.agent_id)

    # -- queueing and claiming -------------------------------------------------------------------

    @classmethod
    def queue(
        cls,
        agent: Agent,
        trigger: Trigger,
        *,
        user: User | None = None,
        at: datetime | None = None,
        **about: Any,
    ) -> "RefinementSession":
        """Queue a session; SessionAlreadyLive. ``about``: see SessionRequest."""
        at = at or clock.now()
        db.session.flush()
        if (reason := eligibility.unavailable_reason(agent, automatic=False)) is not None:
            raise Refused(f"{reason}, so no session can run")
        agent.lock()
        if (live := cls.live_of(agent)) is not None and not live.end_if_lost(at):
            raise SessionAlreadyLive(live.id, live.status)
        return cls.queue_all([SessionRequest(agent, trigger, **about)], user=user, at=at)[0]

    @classmethod
    def queue_all(
        cls, requests: Collection[SessionRequest], *, user: User | None = None, at: datetime
    ) -> list["RefinementSession"]:
        """Queue sessions in a few statements; agents are locked, available, without live ones."""
        sessions = cls._add_all([cls._requested(each, user, at) for each in requests])
        if sessions:
            events_of = [(each.agent.chain, each._first_events(user)) for each in sessions]
            AuditLog.record_all(events_of, at=at)
        return sessions

    @classmethod
    def _requested(
        cls, request: SessionRequest, user: User | None, at: datetime
    ) -> "RefinementSession":
        agent, trigger, slot_at, attempt, skip_reason = request
        fields: dict[str, Any] = {"trigger": trigger, "slot_at": slot_at, "attempt": attempt}
        if skip_reason is not None:
            fields |= {"status": "skipped", "end_reason": skip_reason, "ended_at": at}
            fields["memories_after"], fields["mass_after"] = agent.ledger.core_totals()
        user_id = user.id if user is not None else None
        return cls._new(agent, at, user_id=user_id, threshold=agent.threshold, **fields)

    def _first_events(self, user: User | None) -> list[Event]:
        about = self._about(user)
        queued = Event("refinement_queued", data={"trigger": self.trigger}, **about)
        if self.is_live:
            return [queued]
        log_after_commit("session ended", self.facts())
        return [queued, Event(END_ACTION[self.status], data=self.measured(), **about)]

    def _about(self, user: User | None) -> dict[str, Any]:
        return {"session_id": self.id, "subject": self, "user": user}

    def next_attempt(self) -> SessionRequest:
        trigger = cast(Trigger, self.trigger)
        return SessionRequest(self.agent, trigger, self.slot_at, self.attempt + 1)

    @classmethod
    def start(
        cls, agent: Agent, trigger: Trigger = "manual", *, at: datetime | None = None
    ) -> "RefinementSession":
        """Return a running session with a snapshot of all memories, or a ``skipped`` one."""
        session = cls.queue(agent, trigger, at=at)
        if session.claim(at) is not None:
            session.take_snapshot()
        return session

    def _may_start(self, at: datetime) -> bool:
        reason = self.skip_reason(at)
        if reason is None and self.has_begun:
            reason = self._why_not_continued(at)
        if reason is not None:
            self.finish(self.stopped_status, reason, at=at)
        return reason is None

    # -- from one worker to the next -------------------------------------------------------------

    @property
    def has_begun(self) -> bool:
        return self.consented_at is not None

    def hand_back(
        self, reason: str, said: dict[str, Any] | None = None, *, at: datetime | None = None
    ) -> None:
        """Queue it for another worker: before the consent as new, afterwards to continue with what
        was ``said``. A stop that was requested holds.
        """
        at = at or clock.now()
        is_last = self.has_begun and (said is None or self.handed_back >= MAX_HANDED_BACK)
        if is_last or self.is_stop_requested or self.agent.is_unusable:
            often = f" after {self.handed_back} workers before" if self.handed_back else ""
            super().hand_back(f"{reason}{often}", at=at)
            return
        if self.has_begun:
            self.handed_back, self.handed_back_at = self.handed_back + 1, at
            self.conversation = json.dumps({**(said or {}), "number": self.handed_back})
        else:
            self._forget_snapshot()
        self.status, self.lease_token = self.waiting_status, None
        about = {**self._about(None), "data": {"handed_back": self.handed_back}}
        self.agent.record("memory_refinement_handed_back", at=at, **about)
        log_after_commit("session handed back", self.facts())

    def _forget_snapshot(self) -> None:
        db.session.execute(delete(SessionEntry).where(SessionEntry.session_id == self.id))
        self.memories_before = self.mass_before = self.shown_memories = None
        self.batch_through_id, self.removable_tokens = None, 0

    @property
    def said(self) -> dict[str, Any] | None:
        """What its last worker left; None if there is nothing, or something else."""
        try:
            said: dict[str, Any] = json.loads(self.conversation or "{}")
        except SealingError:
            return None
        return said if said.get("number") == self.handed_back else None

    def _why_not_continued(self, at: datetime) -> str | None:
        if self.handed_back_at is None or self.handed_back_at < at - TAKEN_UP_WITHIN:
            return f"no worker continued it within {in_hours(TAKEN_UP_WITHIN)}"
        if self.model_id != self.agent.model_id:
            return "the agent's model was changed while it waited for a worker"
        return "what was said in it cannot be opened" if self.said is None else None

    def note_watched(self) -> None:
        """Note that somebody watches, whatever its worker changes at the same moment."""
        mine = update(RefinementSession).where(RefinementSession.id == self.id)
        noted = mine.values(watched_at=clock.now())
        db.session.execute(noted, execution_options={"synchronize_session": False})

    @property
    def is_watched(self) -> bool:
        return self.watched_at is not None and self.watched_at > clock.now() - _WATCHED_FOR

    # -- what it is measured against -------------------------------------------------------------

    def take_snapshot(self, shown: Collection[int] | None = None) -> None:
        """Fix entries, mass and limits; ``shown``: ids of memories shown, None: all."""
        entries = SessionEntry.add_all(self, self.agent.ledger.each_core(), shown)
        self.memories_before = len(entries)
        self.shown_memories = len(entries) if shown is None else len(shown)
        self.mass_before = sum(entry.ceiling_tokens for entry in entries)
        self.threshold = self.agent.threshold
        removed_recently = self.removed_recently(self.agent)
        self.removable_tokens = self.removable_of(self.mass_before, self.agent, removed_recently)
        db.session.flush()

    @classmethod
    def removed_recently(cls, agent: Agent, at: datetime | None = None) -> int:
        """Return what sessions and the agent's corrections removed in the window; RowAltered."""
        since = (at or clock.now()) - ROLLING_WINDOW
        outside = db.session.scalar(removed_outside_sessions(agent.id, since)) or 0
        return cls.removed_by(cls.ended_since(since, [agent.id])[agent.id]) + outside

    @classmethod
    def ended_since(
        cls, since: datetime, agent_ids: Collection[int]
    ) -> dict[int, list["RefinementSession"]]:
        """Return sessions by agent, even if only records say that they ended: RowAltered."""
        found: dict[int, list[RefinementSession]] = {id_: [] for id_ in agent_ids}
        lately = select(cls.id, cls.agent_id).where(
            in_ids(cls.agent_id, agent_ids), cls.ended_at > since
        )
        on_record = select(AuditLog.session_id, AuditLog.agent_id).where(
            in_ids(AuditLog.agent_id, agent_ids),
            AuditLog.action.in_(END_ACTION.values()),
            AuditLog.created_at > since,
        )
        ended = lately.union(on_record).subquery()
        sessions = select(ended.c.agent_id, cls).join(ended, ended.c.id == cls.id)
        for agent_id, session in db.session.execute(sessions):
            found[agent_id].append(session)
        return found

    @staticmethod
    def removed_by(sessions: Iterable["RefinementSession"]) -> int:
        """Add up the tokens that sessions removed and that were not restored."""
        removed = 0
        for session in sessions:
            session.require_genuine()
            is_undone = session.undone_at is not None
            removed += session.counted("tokens_gone") if is_undone else session.removed_tokens
        return removed

    def standing_since(self, since: datetime) -> list["RefinementSession"]:
        """Return the agent's sessions that ended since then and whose edits stand; RowAltered."""
        found = self.ended_since(since, [self.agent_id])[self.agent_id]
        for session in found:
            session.require_genuine()
        return [each for each in found if each.undone_at is None and each.status != "rolled_back"]

    @classmethod
    def removable_of(cls, mass: int, agent: Agent, removed_recently: int) -> int:
        return removable_tokens(
            mass,
            threshold=agent.threshold,
            rolling_floor=settings.current().rolling_floor,
            removed_recently=removed_recently,
        )

    @classmethod
    def erosion_reason(cls, agent: Agent, removed_recently: int | None = None) -> str | None:
        """Return why the rolling floor allows no removal now; None if it allows some."""
        if removed_recently is None:
            removed_recently = cls.removed_recently(agent)
        floor = settings.current().rolling_floor
        left = removable_under_floor(agent.core_token_usage, floor, removed_recently)
        return None if left > 0 else ERODED

    @classmethod
    def is_eroded(cls, at: datetime) -> ColumnElement[bool]:
        """Match agents with an ``erosion_reason``."""
        # for an index: no session lasts as long as the window
        lately = and_(cls.ended_at > at - ROLLING_WINDOW, cls.created_at > at - 2 * ROLLING_WINDOW)
        gone = cls.stats["tokens_gone"].as_integer()
        each = case((cls.undone_at.is_(None), cls.removed_tokens), else_=func.coalesce(gone, 0))
        removed = select(func.coalesce(func.sum(each), 0)).where(cls.agent_id == Agent.id, lately)
        mass, floor = Agent.core_tokens, literal(settings.current().rolling_floor, Numeric)
        outside = removed_outside_sessions(Agent.id, at - ROLLING_WINDOW)
        before = mass + removed.correlate(Agent).scalar_subquery()
        before += outside.correlate(Agent).scalar_subquery()
        return mass - func.ceil(floor * before) <= 0

    # -- ending ----------------------------------------------------------------------------------

    def give_up(
        self, reason: str, error_kind: str | None = None, *, at: datetime | None = None
    ) -> None:
        """End ``incomplete`` after changes, as stopped if requested, else ``failed``."""
        status: EndStatus = "incomplete" if self.mutation_count else "failed"
        user = None
        if self.is_stop_requested:
            status, user = self.stopped_status, self.stop_requested_by
            reason = f"{self.stop_reason}; {reason}"
        self.finish(status, reason, error_kind=error_kind, user=user, at=at)

    def finish(
        self,
        status: EndStatus,
        reason: str,
        *,
        error_kind: str | None = None,
        summary: str | None = None,
        reversal: Reversal = Reversal(),  # noqa: B008
        user: User | None = None,
        at: datetime | None = None,
    ) -> None:
        """End with a record of measured figures, and a journal note for the agent. Of an agent that
        was erased or altered meanwhile, only figures are recorded.
        """
        at = at or clock.now()
        db.session.flush()
        self.require_genuine()
        edited = [change.memory_id for change in reversal.changes]
        locked = AgentMemory.lock_rows(self.agent, edited)
        self._measure_end(reversal.changes)
        self.status, self.end_reason, self.error_kind = status, reason, error_kind
        self.lease_token, self.ended_at, self.sealed_conversation = None, at, None
        action, about = END_ACTION[status], self._about(user)
        if self.agent.is_unusable:
            self.agent.record(action, data=self.measured(), at=at, **about)
        else:
            changes = [*reversal.changes, *self._tell(summary, reversal.note, at)]
            about["data"] = {**self.measured(), **reversal.data}
            change_memories(action, changes, agent=self.agent, locked=locked, at=at, **about)
        if status in CONSENTED_ENDS:
            self.agent.last_refinement_at = at
        db.session.execute(delete(SessionEntry).where(SessionEntry.session_id == self.id))
        db.session.flush()
        log_after_commit("session ended", self.facts())

    def _measure_end(self, changes: Collection[Change]) -> None:
        count, mass = self.agent.ledger.core_totals()
        self.memories_after = count + sum(change.count_difference for change in changes)
        self.mass_after = mass + sum(change.mass_difference for change in changes)

    def _tell(self, summary: str | None, rollback_note: str | None, at: datetime) -> list[Change]:
        if self.status in CONSENTED_ENDS:
            self.summary = f"{self.summary_line()} {summary or ''}".strip()
        note = closing_note(self, rollback_note)
        return [self.agent.ledger.add_session_note(self.id, note, at)] if note is not None else []

    def request_stop(self, user: User | None = None, at: datetime | None = None) -> None:
        """Ask for a stop before the next step; a queued session ends at once."""
        at = at or clock.now()
        self.lock()
        if not self.is_live:
            raise Refused(f"the session has already ended ({self.status})")
        if not self.is_stop_requested:
            self.stop_requested_at = at
            self.stop_requested_by_id = user.id if user is not None else None
        if self.status == "queued":
            reason = f"{self.stop_reason} while it was queued"
            self.finish(self.stopped_status, reason, user=user, at=at)

    # -- its state -------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self.status == "running"

    @property
    def is_stop_requested(self) -> bool:
        return self.stop_requested_at is not None

    @property
    def stop_reason(self) -> str:
        by_user = self.stop_requested_by_id is not None
        return "stopped on request" if by_user else "stopped on the command line"

    @property
    def stopped_status(self) -> EndStatus:
        return "skipped" if self.consented_at is None else "incomplete"

    @property
    def can_undo(self) -> bool:
        return self.has_changes and not self.is_live and self.undone_at is None

    @property
    def has_changes(self) -> bool:
        """Whether duplicates removed or edits are left after the end."""
        has_edits = self.status != "rolled_back" and any(self.edits.values())
        return self.duplicates_removed > 0 or has_edits

    @hybrid_property
    def is_automatic(self) -> bool:
        """Whether the clock or a sweep queued it, so that it obeys pauses and the cost cap."""
        return self.trigger in AUTOMATIC_TRIGGERS

    @is_automatic.inplace.expression
    @classmethod
    def _is_automatic(cls) -> ColumnElement[bool]:
        return cls.trigger.in_(AUTOMATIC_TRIGGERS)

    @hybrid_property
    def may_be_retried(self) -> bool:
        return (self.status == "failed") & self.is_automatic

    @property
    def retry_at(self) -> datetime | None:
        """When a failed session may be tried again, at the earliest; None if it may not."""
        pause = retry_pause(self.attempt) if self.may_be_retried else None
        return self.ended_at + pause if self.ended_at is not None and pause is not None else None

    @property
    def removed_nothing(self) -> bool:
        return self.removed_tokens + self.duplicates_removed == 0

    @hybrid_property
    def had_effect(self) -> bool:
        """Whether the agent agreed, and exact duplicates or enough of the mass went."""
        is_enough = is_effect(self.removed_tokens, self.mass_before or 0)
        return self.status != "declined" and (is_enough or self.duplicates_removed > 0)

    @had_effect.inplace.expression
    @classmethod
    def _had_effect(cls) -> ColumnElement[bool]:
        is_enough = is_effect(cls.removed_tokens, func.coalesce(cls.mass_before, 0))
        return and_(cls.status != "declined", or_(is_enough, cls.duplicates_removed > 0))

    @property
    def is_limited_by_floor(self) -> bool:
        """Whether the rolling floor, not the threshold, limits what the session may remove."""
        by_threshold = removable_under_threshold(self.mass_before or 0, self.threshold)
        return self.removable_tokens < by_threshold

    @property
    def part_shown(self) -> str | None:
        """Which part of its ledger the agent was shown, why, and what to do; None for all of it."""
        if self.batch_through_id is None or self.status == "skipped":
            return None
        return (
            f"Of {self.memories_before:,} memories, only {self.shown_memories:,} were shown, "
            "because the model's context is too small for all of them; the next session goes on "
            "where this one ended. To show more at once, give the agent a model with a larger "
            "context or, if the provider's list names none for its model, raise "
            f"`REFINE_CONTEXT_TOKENS` (now {settings.current().context_tokens:,})."
        )

    @property
    def undone_by_label(self) -> str:
        """The user's e-mail address, or the channel."""
        return self.undone_by.email if self.undone_by is not None else f"the {self.undone_through}"

    # -- its figures -----------------------------------------------------------------------------

    @property
    def tokens_left(self) -> int:
        return self.removable_tokens - self.removed_tokens

    @property
    def memories_at_first(self) -> int:
        """How many core memories there were before exact duplicates were removed."""
        there = self.memories_after if self.memories_before is None else self.memories_before
        return (there or 0) + self.duplicates_removed

    @property
    def mass_without_it(self) -> int:
        """The token mass if the session had saved nothing."""
        mass = self.agent.core_token_usage if self.mass_after is None else self.mass_after
        return mass + self.saved_tokens

    @property
    def operations_left(self) -> int:
        return MAX_MUTATIONS - self.mutation_count

    def is_too_much(self, removed_tokens: int) -> bool:
        """Tell whether it trips the breaker; never with an empty ledger."""
        return bool(self.memories_before) and removed_tokens > self.removable_tokens

    def count_call(self, usage: Usage, *, is_aside: bool = False) -> None:
        """Count a second reading, which is aside, among all calls and apart; it is no turn."""
        super().count_call(usage)
        if not is_aside:
            self.turns += self.consented_at is not None
            return
        self.reading_calls += 1
        self.reading_prompt_tokens += usage.prompt_tokens
        self.reading_completion_tokens += usage.completion_tokens
        self.reading_cost_usd += usage.cost_usd or 0

    @property
    def edits(self) -> dict[str, int]:
        """The edits among the stats: those that the agent made."""
        return {stat: n for stat, n in self.stats.items() if stat in _NOTHING_DONE}

    def counted(self, stat: str) -> int:
        return self.stats.get(stat, 0)

    def count(self, stat: str, more: int = 1) -> None:
        self.stats = {**self.stats, stat: self.counted(stat) + more}

    def note_refused(self, cause: str, ids: Collection[int]) -> int:
        """Note an edit that was refused; return how often edits of these ids were."""
        self.count(f"refused_{cause}")
        times = 1 + sum(int(each["times"]) for each in self.refused if each["ids"] == sorted(ids))
        others = [each for each in self.refused if each["ids"] != sorted(ids)]
        edit = {"cause": cause, "ids": sorted(ids), "times": times}
        self.refused = [*others, edit][-MAX_LISTED:]
        return times

    def summary_line(self) -> str:
        """Return the measured outcome: ``Refinement session: 100 → 99 memories, …``."""
        saved = self.saved_tokens
        facts = [f"{count} {verb}" for verb, count in self.edits.items() if count]
        if self.details_lost:
            facts.append(f"{plural(self.details_lost, 'detail')} lost")
        if self.status == "rolled_back":
            facts.append("all undone")
        if self.duplicates_removed:
            facts.append(f"{plural(self.duplicates_removed, 'exact duplicate')} removed")
        line = (
            f"Refinement session: {self.memories_at_first} → {self.memories_after} memories, "
            f"{plural(abs(saved), 'token')} {'saved' if saved >= 0 else 'added'} "
            f"({', '.join(facts) or 'no changes'})."
        )
        if (retired := self.counted("retired")) and self.status != "rolled_back":
            line += f" Retired as outdated or wrong, and kept apart: {retired}."
        return line

    def measured(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in _MEASURED},
            "reason": self.end_reason,
            "threshold": f"{self.threshold:.{THRESHOLD_DECIMALS}f}",
            "stats": dict(self.stats),
            **self.usage(),
            "reading_cost_usd": f"{self.reading_cost_usd:.{USD_DECIMALS}f}",
            "started_at": clock.iso(self.started_at),
        }

    # -- finding ---------------------------------------------------------------------------------

    @classmethod
    def live_of(cls, agent: Agent) -> "RefinementSession | None":
        return db.session.scalar(
            select(cls)
            .where(cls.agent_id == agent.id, cls.is_live)
            .execution_options(populate_existing=True)
        )

    @classmethod
    def last_ended_of(
        cls, agent: Agent, *, before: datetime, statuses: Collection[str] = ENDED
    ) -> "RefinementSession | None":
        """Return the last session that ended so before a time; RowAltered."""
        those = select(cls).where(
            cls.agent_id == agent.id, cls.status.in_(statuses), cls.created_at < before
        )
        last = db.session.scalar(those.order_by(cls.created_at.desc()).limit(1))
        if last is not None:
            last.require_genuine()
        return last

    def earlier_hints(self) -> Sequence[list[list[int]]]:
        """Return the hints of the agent's last sessions before this one, the newest first."""
        cls = type(self)
        consented = select(cls.hints).where(
            cls.agent_id == self.agent_id,
            cls.consented_at.is_not(None),
            cls.created_at < self.created_at,
        )
        return db.session.scalars(
            consented.order_by(cls.created_at.desc()).limit(_HINTED_SESSIONS)
        ).all()

    @classmethod
    def last_changing_of(cls, agent: Agent) -> "RefinementSession | None":
        """Return the last session that changed memories, undone or not."""
        mine = select(cls).where(cls.agent_id == agent.id, ~cls.is_live)
        newest_first = db.session.scalars(mine.order_by(cls.created_at.desc()))
        return next((session for session in newest_first if session.has_changes), None)
