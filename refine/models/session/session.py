"""Refinement sessions: supervised runs in which an agent edits its own core memories."""

import uuid
from datetime import datetime
from typing import Any, cast

from sqlalchemy import CheckConstraint, Index, UniqueConstraint, or_, select, text, update

from refine import clock
from refine.errors import Refused
from refine.extensions import Base, db
from refine.models.agent import Agent
from refine.models.audit import AuditLog
from refine.models.run import LIVE, Spent
from refine.models.session.columns import (
    AFTER_LOOP,
    AUTOMATIC_TRIGGERS,
    ENDED,
    TRIGGERS,
    Trigger,
)
from refine.models.session.editing import Editing
from refine.models.session.planning import Planning
from refine.models.session.totals import Totals
from refine.models.user import User


class SessionAlreadyLive(Refused):
    """The agent has a queued or running session; ``session_id`` is that one."""

    def __init__(self, session_id: uuid.UUID, status: str = "live") -> None:
        self.session_id = session_id
        super().__init__(f"the agent already has a live session, {status}: {session_id}")


class RefinementSession(Planning, Editing, Totals, Base):
    """One session, from its queueing on; its capabilities are in the files beside this one."""

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
        if agent.is_erased:
            raise Refused(f"{agent.name} was erased: there is nothing left to refine")
        agent.lock()
        if (live := cls.live_of(agent)) is not None and not live.end_if_lost(at):
            raise SessionAlreadyLive(live.id, live.status)
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

    def queue_again(self, at: datetime) -> "RefinementSession":
        """Queue another attempt at what this session failed at."""
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
        """Return a running session with its snapshot taken, all of its ledger shown.

        The commit is the caller's.
        """
        session = cls.queue(agent, trigger, at=at)
        session.claim(at)
        session.take_snapshot()
        return session

    def claim(self, at: datetime | None = None) -> uuid.UUID | None:
        """Take the queued session over; return the lease, or None if it is not queued any more.

        The agent's model is read now. Where the agent was deactivated since, the session ends
        ``skipped`` instead; one that nobody asked for also where agent or account were paused, or
        the account's cost cap is reached.
        """
        at = at or clock.now()
        self.lock()
        if self.status == "queued" and (why_not := self._why_not_now(at)):
            self.finish("skipped", why_not, at=at)
            return None
        lease_token = uuid.uuid4()
        claimed = db.session.execute(
            update(RefinementSession)
            .where(RefinementSession.id == self.id, RefinementSession.status == "queued")
            .values(
                status="running",
                model_id=self.agent.model_id,
                lease_token=lease_token,
                started_at=at,
                heartbeat_at=at,
            )
            .execution_options(synchronize_session=False)
            .returning(RefinementSession.id)
        ).scalar_one_or_none()
        db.session.refresh(self)
        return lease_token if claimed is not None else None

    def count_call(self, spent: Spent) -> None:
        """Add what one call of the model cost; those after the consent are turns."""
        super().count_call(spent)
        self.turns += self.consented_at is not None

    @classmethod
    def live_of(cls, agent: Agent) -> "RefinementSession | None":
        """Return the agent's queued or running session."""
        return db.session.scalar(
            select(cls)
            .where(cls.agent_id == agent.id, cls.status.in_(LIVE))
            .execution_options(populate_existing=True)
        )

    @classmethod
    def last_of(cls, agent: Agent, *, before: datetime | None = None) -> "RefinementSession | None":
        """Return the agent's last session that ran its loop."""
        ran = select(cls).where(
            cls.agent_id == agent.id,
            cls.status.in_(AFTER_LOOP),
        )
        if before is not None:
            ran = ran.where(cls.created_at < before)
        return db.session.scalar(ran.order_by(cls.created_at.desc()).limit(1))

    @classmethod
    def last_at_work(cls, agent: Agent) -> "RefinementSession | None":
        """Return the agent's last ended session that ran its loop, or removed duplicates."""
        return db.session.scalar(
            select(cls)
            .where(
                cls.agent_id == agent.id,
                or_(
                    cls.status.in_(AFTER_LOOP),
                    cls.status.in_(ENDED) & (cls.duplicates_removed > 0),
                ),
            )
            .order_by(cls.created_at.desc())
            .limit(1)
        )

    def _why_not_now(self, at: datetime) -> str | None:
        if not self.agent.active:
            return "the agent is not active any more"
        if self.agent.is_erased:
            return "the agent was erased"
        if self.trigger not in AUTOMATIC_TRIGGERS:
            return None
        if self.agent.paused:
            return "the agent was paused"
        if self.agent.account.paused:
            return "its account was paused"
        if self.is_cost_cap_reached(self.agent.account, at):
            return "the account's monthly cost cap is reached"
        return None

    def _record(self, action: str, data: dict[str, Any], **record: Any) -> None:
        AuditLog.record(
            action,
            agent=self.agent,
            session_id=self.id,
            subject=("RefinementSession", self.id),
            data=data,
            **record,
        )
