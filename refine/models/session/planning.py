"""Which agents an automatic session is due for, and what keeps one from being asked."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Self

from sqlalchemy import ColumnElement, Select, and_, exists, func, or_, select
from sqlalchemy.orm import aliased

from refine import settings
from refine.extensions import db
from refine.models.account import Account
from refine.models.agent import Agent
from refine.models.audit import AuditLog
from refine.models.memory import AgentMemory
from refine.models.run import LIVE
from refine.models.session.columns import AFTER_LOOP, AUTOMATIC_TRIGGERS
from refine.models.session.snapshot import ERODED, Snapshot
from refine.models.spending import cost_usd_of_month
from refine.models.wrapped_key import WrappedKey
from refine.rules.pacing import RETRY_PAUSES, cooldown, retry_pause

# The ends of a session whose agent was asked, and answered.
_ANSWERED = (*AFTER_LOOP, "declined")
# So many fruitless sessions in a row make the longest cool-down, whatever the setting.
_LONGEST_STREAK = 10
# A retry that did not come about for so long is not made up for.
_RETRIED_WITHIN = timedelta(days=31)


class Planning(Snapshot):
    """What the clock asks before it queues a session that nobody asked for."""

    # -- who is due -------------------------------------------------------------------------------

    @classmethod
    def due_for_slot(cls, account: Account, slot_at: datetime) -> Select[int]:
        """Return a query for the ids of the account's agents that this slot owes a session.

        Those that were not refined since, and have neither a session of this slot nor one that
        ended since and counts for it: the agent answered it, or it failed and is tried again.
        """
        counts = and_(
            cls.ended_at >= slot_at,
            or_(
                cls.status.in_(_ANSWERED),
                and_(cls.status == "failed", cls.trigger.in_(AUTOMATIC_TRIGGERS)),
            ),
        )
        served = exists().where(cls.agent_id == Agent.id, or_(cls.slot_at == slot_at, counts))
        return select(Agent.id).where(
            Agent.account_id == account.id,
            _may_be_refined(),
            or_(Agent.last_refinement_at.is_(None), Agent.last_refinement_at < slot_at),
            ~served,
        )

    @classmethod
    def has_live(cls) -> ColumnElement[bool]:
        """Return the condition that an agent has a live session."""
        return exists().where(cls.agent_id == Agent.id, cls.status.in_(LIVE))

    @classmethod
    def over_budget(cls, at: datetime) -> Select[int]:
        """Return a query for the ids of agents over their budget that may be asked.

        Without a live session, and not in the shortest cool-down; ``is_left_alone`` knows the
        longer ones.
        """
        mass = (
            select(func.coalesce(func.sum(AgentMemory.token_estimate), 0))
            .where(_is_kept_core_of_agent())
            .scalar_subquery()
        )
        shortest = cooldown(settings.current().cooldown_hours, 0)
        answered_lately = exists().where(
            cls.agent_id == Agent.id, cls.status.in_(_ANSWERED), cls.ended_at > at - shortest
        )
        return (
            select(Agent.id)
            .join(Agent.account)
            .where(
                _may_be_refined(),
                Account.paused.is_(False),
                mass > Agent.core_token_budget,
                ~cls.has_live(),
                ~answered_lately,
            )
        )

    @classmethod
    def failed_last(cls, at: datetime) -> Select[int]:
        """Return a query for the ids of agents whose last session was automatic, and failed."""
        later = aliased(cls)
        superseded = exists().where(
            later.agent_id == cls.agent_id, later.created_at > cls.created_at
        )
        return (
            select(Agent.id)
            .join(cls, cls.agent_id == Agent.id)
            .join(Agent.account)
            .where(
                cls.status == "failed",
                cls.trigger.in_(AUTOMATIC_TRIGGERS),
                cls.attempt <= len(RETRY_PAUSES),
                cls.created_at > at - _RETRIED_WITHIN,
                cls.ended_at <= at - RETRY_PAUSES[0],
                _may_be_refined(),
                Account.paused.is_(False),
                ~superseded,
            )
        )

    # -- when, and why not ------------------------------------------------------------------------

    @classmethod
    def why_forbidden(cls, agent: Agent, at: datetime) -> str | None:
        """Return what forbids sessions that nobody asked for, in words; None if nothing does."""
        if agent.account.paused:
            return "its account is paused"
        if cls.is_cost_cap_reached(agent.account, at):
            cap = agent.account.monthly_cost_cap_usd
            return f"the account's monthly cost cap of ${cap} is reached"
        return ERODED if cls.is_eroded(agent, at) else None

    @classmethod
    def why_not_ask(cls, agent: Agent, at: datetime) -> str | None:
        """Return why the clock does not ask the agent now, in words; None if it may."""
        if (forbidden := cls.why_forbidden(agent, at)) is not None:
            return forbidden
        if cls._is_unchanged(agent):
            return "nothing changed since the last session, which removed nothing"
        return None

    @classmethod
    def is_left_alone(cls, agent: Agent, at: datetime) -> bool:
        """Tell whether an agent over its budget is not to be asked yet.

        It cools down; a session could remove nothing; or its last session failed, and that one is
        tried again in its own time.
        """
        if cls.removable_now(agent, at) == 0:
            return True
        latest = cls.latest_of(agent)
        if latest is not None and latest._is_failure_of_slot(at):
            return True
        cools_down_until = cls.cools_down_until(agent)
        return cools_down_until is not None and at < cools_down_until

    @classmethod
    def cools_down_until(cls, agent: Agent) -> datetime | None:
        """Return when an agent over its budget may be asked again; None if it never was."""
        answered = cls._answered(agent)
        if not answered or answered[0].ended_at is None:
            return None
        fruitless = list(takewhile(lambda session: not session.was_fruitful, answered))
        pause = cooldown(settings.current().cooldown_hours, len(fruitless))
        return answered[0].ended_at + pause

    def is_due_again(self, at: datetime) -> bool:
        """Tell whether this failed session, its agent's last one, is to be tried again now."""
        pause = retry_pause(self.attempt)
        if pause is None or self.ended_at is None or not self._is_failure_of_slot(at):
            return False
        is_needed = self.trigger != "over_budget" or self.agent.is_over_budget
        return is_needed and self.ended_at + pause <= at and not self.why_not_ask(self.agent, at)

    @classmethod
    def is_cost_cap_reached(cls, account: Account, at: datetime) -> bool:
        """Tell whether the account's agents cost as much this month as they may."""
        cap = account.monthly_cost_cap_usd
        return cap is not None and cost_usd_of_month(account, at) >= cap

    @classmethod
    def latest_of(cls, agent: Agent) -> Self | None:
        """Return the agent's latest session, whatever became of it."""
        return db.session.scalar(
            select(cls).where(cls.agent_id == agent.id).order_by(cls.created_at.desc()).limit(1)
        )

    @property
    def was_fruitful(self) -> bool:
        """Whether the session removed something, duplicates included, and the agent agreed."""
        return self.status != "declined" and self.removed_tokens + self.duplicates_removed > 0

    def _is_failure_of_slot(self, at: datetime) -> bool:
        """Whether nobody asked for this session, it failed, and no slot came since."""
        if self.ended_at is None or self.status != "failed":
            return False
        is_automatic = self.trigger in AUTOMATIC_TRIGGERS
        return is_automatic and self.ended_at >= self.agent.account.last_slot(at)

    @classmethod
    def _answered(cls, agent: Agent) -> Sequence[Self]:
        """The agent's last sessions that it answered, newest first."""
        return db.session.scalars(
            select(cls)
            .where(cls.agent_id == agent.id, cls.status.in_(_ANSWERED))
            .order_by(cls.created_at.desc())
            .limit(_LONGEST_STREAK)
        ).all()

    @classmethod
    def _is_unchanged(cls, agent: Agent) -> bool:
        """Whether core memories and settings are as the last, fruitless session left them.

        Of a ledger that was shown in batches the next one is still to be looked at.
        """
        last = next(iter(cls._answered(agent)), None)
        if last is None or last.was_fruitful or last.undone_at is not None:
            return False
        if last.batch_through_id is not None:
            return False
        saved_meanwhile = and_(
            AgentMemory.recorded_at > last.started_at,
            AgentMemory.session_id.is_distinct_from(last.id),
        )
        memory_changed = exists().where(
            AgentMemory.agent_id == agent.id,
            AgentMemory.memory_type == "core",
            or_(AgentMemory.updated_at > last.ended_at, saved_meanwhile),
        )
        settings_changed = exists().where(
            AuditLog.agent_id == agent.id,
            AuditLog.action == "agent_settings_update",
            AuditLog.created_at > last.ended_at,
        )
        return not db.session.scalar(select(or_(memory_changed, settings_changed)))


def _may_be_refined() -> ColumnElement[bool]:
    """Active, not paused, not erased, with a kept core memory that a session may change."""
    unlocked = exists().where(_is_kept_core_of_agent(), ~AgentMemory.is_locked)
    readable = exists().where(WrappedKey.id == Agent.data_key_id, WrappedKey.wrapped.is_not(None))
    return and_(Agent.active, ~Agent.paused, unlocked, readable)


def _is_kept_core_of_agent() -> ColumnElement[bool]:
    return and_(
        AgentMemory.agent_id == Agent.id,
        AgentMemory.memory_type == "core",
        AgentMemory.discarded_at.is_(None),
    )
