"""Refinement sessions: supervised runs in which an agent edits its own core memories."""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, NamedTuple, cast

from sqlalchemy import (
    CheckConstraint,
    ColumnElement,
    Index,
    Numeric,
    UniqueConstraint,
    and_,
    delete,
    func,
    literal,
    select,
    text,
)

from refine import clock, settings
from refine.errors import Refused
from refine.extensions import Base, db
from refine.models.agent import Agent, eligibility
from refine.models.attested import Attested, ChainOwner
from refine.models.audit import AuditLog
from refine.models.audit.record import Event
from refine.models.columns import one_of_ids
from refine.models.ledger import AgentMemory, Change, change_memories
from refine.models.people import User
from refine.models.runs.run import LIVE, errors_index, log_after_commit
from refine.models.runs.session.entry import SessionEntry
from refine.models.runs.session.notes import closing_note
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
from refine.rules.quantities import in_days
from refine.rules.retention import removable_tokens, removable_under_floor, threshold_check

# Why the floor against slow erosion allows no session.
ERODED = f"sessions of the last {in_days(ROLLING_WINDOW)} removed as much as is allowed"


END_ACTION = {
    "completed": "memory_refinement_complete",
    "rolled_back": "memory_refinement_rollback",
    "incomplete": "memory_refinement_incomplete",
    "declined": "memory_refinement_declined",
    "skipped": "memory_refinement_skipped",
    "failed": "memory_refinement_failed",
}


class Reversal(NamedTuple):
    """What a rollback undoes, what its record adds to the figures, and what the agent is told."""

    changes: Sequence[Change]
    data: Mapping[str, Any]
    note: str | None


NO_REVERSAL = Reversal((), {}, None)


class SessionAlreadyLive(Refused):
    """The agent has a queued or running session; ``session_id`` is that one."""

    def __init__(self, session_id: uuid.UUID, status: str = "live") -> None:
        self.session_id = session_id
        super().__init__(f"the agent already has a live session, {status}: {session_id}")


class SessionRequest(NamedTuple):
    """A session that is to be queued for an agent.

    With ``skip_reason`` it ends at once, ``skipped``: the slot is accounted for without a question.
    """

    agent: Agent
    trigger: Trigger
    slot_at: datetime | None = None
    attempt: int = 1
    skip_reason: str | None = None


class RefinementSession(SessionState, Attested, Base):
    """One session: queued, claimed, measured, ended.

    What happens in between is in ``duplicates``, ``editing`` and ``breaker``.
    """

    __table_args__ = (
        CheckConstraint(f"trigger IN {TRIGGERS}", name="trigger"),
        CheckConstraint(f"status IN {LIVE + ENDED}", name="status"),
        CheckConstraint(threshold_check("threshold"), name="threshold"),
        CheckConstraint(f"mutation_count BETWEEN 0 AND {MAX_MUTATIONS}", name="mutation_count"),
        CheckConstraint("details_lost >= 0", name="details_lost"),
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
        Index("ix_refinement_sessions_created_at", text("created_at DESC"), "id"),
        errors_index("refinement_sessions"),
    )

    # its figures decide what it may still remove and, once it has ended, what later sessions may
    unsigned: ClassVar[Mapping[str, str]] = {
        "sealed_summary": "sealed: nobody can write it without the agent's key",
        "sealed_consent_reply": "sealed: nobody can write it without the agent's key",
    }
    # it changes with each step, so records keep only the digest of its end
    statuses_without_records = LIVE

    @property
    def chain_owner(self) -> ChainOwner:
        """The agent."""
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
        """Add a queued session, recorded as ``refinement_queued``; ``about``: as in SessionRequest.

        SessionAlreadyLive if the agent has a live one. One whose worker was lost ends first.
        """
        at = at or clock.now()
        db.session.flush()
        if (reason := eligibility.unavailable_reason(agent, automatic=False)) is not None:
            raise Refused(f"{reason}, so no session can run")
        agent.lock()
        if (live := cls.live_of(agent)) is not None:
            live.end_if_lost_or_raise(at)
        return cls.queue_all([SessionRequest(agent, trigger, **about)], user=user, at=at)[0]

    def end_if_lost_or_raise(self, at: datetime) -> None:
        """End, for another session of the agent, if the worker was lost; or SessionAlreadyLive."""
        if not (self.is_lost(at) and self.end_if_lost(at)):
            raise SessionAlreadyLive(self.id, self.status)

    @classmethod
    def queue_all(
        cls, requests: Collection[SessionRequest], *, user: User | None = None, at: datetime
    ) -> list["RefinementSession"]:
        """Add queued sessions as ``queue`` does, in a few statements for all.

        The agents are locked, available, and have no live session.
        """
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
        about: dict[str, Any] = {"subject": ("RefinementSession", self.id), "user": user}
        data = {"trigger": self.trigger}
        queued = Event("refinement_queued", session_id=self.id, data=data, **about)
        if self.is_live:
            return [queued]
        log_after_commit("session ended", self.facts())
        return [queued, self._end_event(user, data=self.measured())]

    def next_attempt(self) -> SessionRequest:
        """Return the next attempt after this failed session."""
        return SessionRequest(
            self.agent, cast(Trigger, self.trigger), slot_at=self.slot_at, attempt=self.attempt + 1
        )

    @classmethod
    def start(
        cls, agent: Agent, trigger: Trigger = "manual", *, at: datetime | None = None
    ) -> "RefinementSession":
        """Return a running session with its snapshot taken and all of its ledger shown.

        One that may not start is ``skipped``. The caller commits.
        """
        session = cls.queue(agent, trigger, at=at)
        if session.claim(at) is not None:
            session.take_snapshot()
        return session

    def _may_start(self, at: datetime) -> bool:
        if (reason := self.skip_reason(at)) is not None:
            self.finish("skipped", reason, at=at)
        return reason is None

    def count_edit(self, operation: str, stat: str, amount: int) -> None:
        """Count an edit, and how many memories it was about; the cap does not count protection."""
        self.stats = {**self.stats, stat: self.stats[stat] + amount}
        self.mutation_count += operation != "protect"

    # -- what it is measured against -------------------------------------------------------------

    def take_snapshot(self, shown: Collection[int] | None = None) -> None:
        """Fix what the session is measured against: entries, mass, and what it may remove.

        ``shown`` are the ids of the memories that the agent is shown; None: all.
        """
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
        """Return how many tokens sessions removed in the rolling window, without undone ones."""
        since = (at or clock.now()) - ROLLING_WINDOW
        return cls.removed_since(since, cls.ended_since(since, [agent.id])[agent.id])

    @classmethod
    def ended_since(
        cls, since: datetime, agent_ids: Collection[int]
    ) -> dict[int, list["RefinementSession"]]:
        """Return the sessions that ended since then, of each of these agents.

        Also those that records say ended, so that a changed row is found, and refused.
        """
        found: dict[int, list[RefinementSession]] = {id_: [] for id_ in agent_ids}
        mine = one_of_ids(agent_ids)
        lately = select(cls.id, cls.agent_id).where(cls.agent_id == mine, cls.ended_at > since)
        on_record = select(AuditLog.session_id, AuditLog.agent_id).where(
            AuditLog.agent_id == mine,
            AuditLog.action.in_(END_ACTION.values()),
            AuditLog.created_at > since,
        )
        ended = lately.union(on_record).subquery()
        sessions = select(ended.c.agent_id, cls).join(ended, ended.c.id == cls.id)
        for agent_id, session in db.session.execute(sessions):
            found[agent_id].append(session)
        return found

    @staticmethod
    def removed_since(since: datetime, sessions: Iterable["RefinementSession"]) -> int:
        """Return how many tokens these sessions removed since then, without undone sessions."""
        removed = 0
        for session in sessions:
            session.require_genuine()
            if session.undone_at is None:
                removed += session.removed_tokens
        return removed

    @classmethod
    def removable_of(cls, mass: int, agent: Agent, removed_recently: int) -> int:
        """Return how many of ``mass`` tokens a session of the agent may remove."""
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
        if removable_under_floor(agent.core_token_usage, floor, removed_recently) > 0:
            return None
        return ERODED

    @classmethod
    def is_eroded(cls, at: datetime) -> ColumnElement[bool]:
        """Return the SQL condition that there is an ``erosion_reason``, as the rows tell it."""
        # for an index: no session lasts as long as the window
        lately = and_(cls.ended_at > at - ROLLING_WINDOW, cls.created_at > at - 2 * ROLLING_WINDOW)
        removed = select(func.coalesce(func.sum(cls.removed_tokens), 0)).where(
            cls.agent_id == Agent.id, lately, cls.undone_at.is_(None)
        )
        mass, floor = Agent.core_tokens, literal(settings.current().rolling_floor, Numeric)
        before = mass + removed.correlate(Agent).scalar_subquery()
        return mass - func.ceil(floor * before) <= 0

    # -- ending ----------------------------------------------------------------------------------

    def give_up(
        self, reason: str, error_kind: str | None = None, *, at: datetime | None = None
    ) -> None:
        """End after a failure: ``incomplete`` if something was changed, else ``failed``.

        A session that somebody asked to stop ends like any other that is stopped: a failure would
        be tried again.
        """
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
        reversal: Reversal = NO_REVERSAL,
        user: User | None = None,
        at: datetime | None = None,
    ) -> None:
        """End with a status and a record of measured figures, and tell the agent in its journal.

        A rollback's ``reversal`` becomes part of the same record; the figures are those after it.
        ``user`` is who asked for the end, if anybody did. For an agent that was erased or altered
        meanwhile, only figures are recorded, and no journal memory is added.
        """
        at = at or clock.now()
        db.session.flush()
        self.require_genuine()
        edited = [change.memory_id for change in reversal.changes]
        memories = AgentMemory.lock_rows(self.agent, edited)
        self._measure_end(reversal.changes)
        self.status, self.end_reason, self.error_kind = status, reason, error_kind
        self.lease_token, self.ended_at = None, at
        told = self._tell(summary, reversal.note)
        data = {**self.measured(), **reversal.data}
        if self.agent.is_unusable:
            event = self._end_event(user, data=data)
            AuditLog.record_all([(self.agent.chain, [event])], at=at)
        else:
            change_memories(
                END_ACTION[status],
                [*reversal.changes, *([told] if told is not None else [])],
                agent=self.agent,
                locked=memories,
                at=at,
                data=data,
                sealed={"summary": self.summary, "consent_reply": self.consent_reply},
                **self._about_end(user),
            )
        if status in CONSENTED_ENDS:
            self.agent.last_refinement_at = at
        db.session.execute(delete(SessionEntry).where(SessionEntry.session_id == self.id))
        db.session.flush()
        log_after_commit("session ended", self.facts())

    def _measure_end(self, changes: Collection[Change]) -> None:
        """Measure the ledger as it is once ``changes`` are made."""
        count, mass = self.agent.ledger.core_totals()
        self.memories_after = count + sum(change.count_difference for change in changes)
        self.mass_after = mass + sum(change.mass_difference for change in changes)

    def _tell(self, summary: str | None, rollback_note: str | None) -> Change | None:
        """Set the summary, and add a note to the agent's journal if there is anything to tell."""
        if self.agent.is_unusable:
            return None
        if self.status in CONSENTED_ENDS:
            self.summary = f"{self.summary_line()} {summary or ''}".strip()
        note, at = closing_note(self, rollback_note), self.ended_at or clock.now()
        return self.agent.ledger.add_session_note(self.id, note, at) if note is not None else None

    def _end_event(self, user: User | None, data: Mapping[str, Any]) -> Event:
        """Return what the record of the end tells."""
        return Event(END_ACTION[self.status], data=data, **self._about_end(user))

    def _about_end(self, user: User | None) -> dict[str, Any]:
        return {"session_id": self.id, "subject": ("RefinementSession", self.id), "user": user}

    def request_stop(self, user: User | None = None, at: datetime | None = None) -> None:
        """Ask the session to stop before its next step; a queued one ends ``skipped`` at once.

        Without a user, it is the server's command line.
        """
        at = at or clock.now()
        self.lock()
        if not self.is_live:
            raise Refused(f"the session has already ended ({self.status})")
        if not self.is_stop_requested:
            self.stop_requested_at = at
            self.stop_requested_by_id = user.id if user is not None else None
        if self.status == "queued":
            self.finish("skipped", f"{self.stop_reason} while it was queued", user=user, at=at)

    def acknowledge(self, user: User, at: datetime | None = None) -> None:
        """Note who looked at how the session ended, recorded as ``refinement_seen``."""
        at = at or clock.now()
        self.lock()
        if not self.needs_attention:
            raise Refused("this session needs no acknowledgement, or was already acknowledged")
        self.seen_at, self.seen_by_id = at, user.id
        self.agent.record(
            "refinement_seen",
            session_id=self.id,
            subject=("RefinementSession", self.id),
            user=user,
            at=at,
        )

    # -- finding ---------------------------------------------------------------------------------

    @classmethod
    def is_for_slot(cls, slot_at: datetime) -> ColumnElement[bool]:
        """Return the SQL condition that the session is for this slot, and so no older than it."""
        return and_(cls.slot_at == slot_at, cls.created_at >= slot_at)

    @classmethod
    def live_of(cls, agent: Agent) -> "RefinementSession | None":
        """Return the agent's queued or running session."""
        return db.session.scalar(
            select(cls)
            .where(cls.agent_id == agent.id, cls.is_live)
            .execution_options(populate_existing=True)
        )

    @classmethod
    def last_consented_of(cls, agent: Agent, *, before: datetime) -> "RefinementSession | None":
        """Return the last of ``last_ended_of`` that the agent consented to."""
        return cls._last_of(agent, before, CONSENTED_ENDS)

    @classmethod
    def last_ended_of(cls, agent: Agent, *, before: datetime) -> "RefinementSession | None":
        """Return the agent's last session before that time that has ended.

        RowAltered if that was changed outside the application.
        """
        return cls._last_of(agent, before, ENDED)

    @classmethod
    def _last_of(
        cls, agent: Agent, before: datetime, statuses: Collection[str]
    ) -> "RefinementSession | None":
        those = select(cls).where(
            cls.agent_id == agent.id, cls.status.in_(statuses), cls.created_at < before
        )
        last = db.session.scalar(those.order_by(cls.created_at.desc()).limit(1))
        if last is not None:
            last.require_genuine()
        return last

    @classmethod
    def last_changing_of(cls, agent: Agent) -> "RefinementSession | None":
        """Return the agent's last ended session that changed memories, undone or not."""
        changed = select(cls).where(cls.agent_id == agent.id, cls.has_changes, ~cls.is_live)
        return db.session.scalar(changed.order_by(cls.created_at.desc()).limit(1))
