"""Refinement sessions: supervised runs in which an agent edits its own core memories."""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, NamedTuple, cast

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ColumnElement,
    Index,
    Numeric,
    Select,
    UniqueConstraint,
    and_,
    bindparam,
    func,
    literal,
    select,
    text,
)

from refine import clock, settings
from refine.errors import Refused, RowAltered
from refine.extensions import Base, db, instant
from refine.extensions.statements import plain_query
from refine.models.agent import Agent
from refine.models.audit import AuditLog
from refine.models.audit.linking import Event
from refine.models.columns import one_of_constants, one_of_parameter
from refine.models.ledger.bulk import core_memories
from refine.models.people import User
from refine.models.people.recording import to_record
from refine.models.runs.log import log_after_commit
from refine.models.runs.run import LIVE, errors_index
from refine.models.runs.session.ending import END_ACTION, SessionEnding
from refine.models.runs.session.entry import COUNTED, Entry, counted, shown_alone
from refine.models.runs.session.state import (
    CONSENTED_ENDS,
    ENDED,
    MAX_MUTATIONS,
    ROLLING_WINDOW,
    TRIGGERS,
    Trigger,
)
from refine.models.unrecorded import ChainOwner
from refine.rules.quantities import in_days
from refine.rules.retention import removable_tokens, removable_under_floor
from refine.rules.threshold import threshold_check

# Why the floor against slow erosion allows no session.
ERODED = f"sessions of the last {in_days(ROLLING_WINDOW)} removed as much as is allowed"


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


class RefinementSession(SessionEnding, Base):
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
        if (reason := agent.unavailable_reason(automatic=False)) is not None:
            raise Refused(f"{reason}, so no session can run")
        agent.lock()
        if (live := cls.live_of(agent)) is not None:
            live.make_room(at)
        return cls.queue_all([SessionRequest(agent, trigger, **about)], user=user, at=at)[0]

    def make_room(self, at: datetime) -> None:
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
            AuditLog.record_in_chains(events_of, at=at)
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
        queued = to_record("refinement_queued", session_id=self.id, data=data, **about)
        if self.is_live:
            return [queued]
        log_after_commit("session ended", self.facts())
        return [queued, self._end_record(user, data=self.measured())]

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
        self.require_no_end()
        if (reason := self.skip_reason(at)) is not None:
            self.finish("skipped", reason, at=at)
        return reason is None

    # -- what it is measured against -------------------------------------------------------------

    def take_snapshot(
        self,
        shown: Collection[int] | None = None,
        entries: Sequence[Entry] | None = None,
        written: Mapping[str, Any] | None = None,
    ) -> None:
        """Fix what the session is measured against: entries, mass, and what it may remove.

        ``shown`` are the ids of the memories that the agent is shown; None: all. ``entries`` are
        those of the ledger as it is now, and ``written`` is what ``counted`` makes of them, if the
        caller already has them.
        """
        key = self.data_key()
        if entries is None:
            entries = shown_alone(
                (Entry.of(each, key) for each in core_memories(self.agent)), shown
            )
        db.session.execute(COUNTED, written or counted(self.id, entries, key))
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

        Whatever was done to a session's row, the records of ends stay, with their dates.
        """
        found: dict[int, list[RefinementSession]] = {id_: [] for id_ in agent_ids}
        values = {"agent_ids": list(agent_ids), "since": since}
        for agent_id, session in db.session.execute(_ended_since(), values):
            found[agent_id].append(session)
        return found

    @staticmethod
    def removed_since(since: datetime, sessions: Iterable["RefinementSession"]) -> int:
        """Return how many tokens these sessions removed since then, without undone sessions."""
        removed = 0
        for session in sessions:
            session.require_genuine()
            if session.ended_at is None:
                raise RowAltered(session.row_name)
            if session.ended_at > since and session.undone_at is None:
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
        """Return the agent's queued or running session; a short query tells if there is one."""
        if not _live_of().rows(agent_id=agent.id):
            return None
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


@plain_query
def _live_of() -> Select[uuid.UUID]:
    mine = RefinementSession.agent_id == bindparam("agent_id", type_=BigInteger)
    return select(RefinementSession.id).where(mine, RefinementSession.is_live)


@cache
def _ended_since() -> Select[*tuple[Any, ...]]:
    mine, since = one_of_parameter("agent_ids"), instant("since")
    lately = select(RefinementSession.id, RefinementSession.agent_id).where(
        RefinementSession.agent_id == mine, RefinementSession.ended_at > since
    )
    on_record = select(AuditLog.session_id, AuditLog.agent_id).where(
        AuditLog.agent_id == mine,
        one_of_constants(AuditLog.action, END_ACTION.values()),
        AuditLog.created_at > since,
    )
    ended = lately.union(on_record).subquery()
    return select(ended.c.agent_id, RefinementSession).join(
        ended, ended.c.id == RefinementSession.id
    )
