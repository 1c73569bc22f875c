"""Agents due for sessions, rules for waiting, and what a sweep would do."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple

from sqlalchemy import ColumnElement, Select, and_, exists, func, or_, select, true
from sqlalchemy.orm import aliased

from refine import settings
from refine.extensions import db
from refine.models.agent import Agent, eligibility
from refine.models.agent.eligibility import AutomaticTrigger, Group, grouped_by
from refine.models.audit import AuditLog
from refine.models.columns import in_constants, in_ids
from refine.models.ledger.ledger import removed_outside_sessions
from refine.models.people import Account
from refine.models.runs.run import LIVE, blocked_reason
from refine.models.runs.session.session import (
    ANSWERED,
    ERODED,
    ROLLING_WINDOW,
    RefinementSession,
    SessionRequest,
)
from refine.models.runs.spending import CostCaps
from refine.rules.pacing import MAX_DOUBLINGS, MAX_QUIET_SLOTS, MAX_RETRIES, RETRY_PAUSES, cooldown

# A retry that is overdue by this much is dropped.
_RETRIED_WITHIN = timedelta(days=31)

# What a session may cost is taken from those of this time.
LOOKS_BACK = timedelta(days=90)

_Session = RefinementSession


# -- who is due -----------------------------------------------------------------------------------


def due_for_slot(account: Account, slot_at: datetime) -> Select[int]:
    """Select agents without a session or another attempt for this slot."""
    answered_or_retried = and_(
        _Session.ended_at >= slot_at,
        or_(
            _Session.status.in_(ANSWERED),
            _Session.may_be_retried,
        ),
    )
    handled = exists().where(
        _Session.agent_id == Agent.id, or_(_Session.slot_at == slot_at, answered_or_retried)
    )
    return select(Agent.id).where(
        Agent.account_id == account.id,
        eligibility.is_refinable(),
        eligibility.not_refined_since(slot_at),
        ~handled,
    )


def has_live_session() -> ColumnElement[bool]:
    return exists().where(_Session.agent_id == Agent.id, _Session.is_live)


def over_budget(at: datetime) -> Select[int]:
    """Select agents over budget, past the shortest cool-down; ``Candidates`` check the rest."""
    shortest = cooldown(settings.current().cooldown_hours, 0)
    answered_lately = exists().where(
        _Session.agent_id == Agent.id,
        _Session.status.in_(ANSWERED),
        _Session.ended_at > at - shortest,
    )
    return select(Agent.id).where(
        eligibility.is_refinable(), Agent.over_budget, ~has_live_session(), ~answered_lately
    )


def with_failed_last_session(at: datetime) -> Select[int]:
    """Select agents whose failed session may be tried again; ``Candidates`` check the rest."""
    later = aliased(_Session)
    superseded = exists().where(
        later.agent_id == _Session.agent_id, later.created_at > _Session.created_at
    )
    return (
        select(Agent.id)
        .join(_Session, _Session.agent_id == Agent.id)
        .where(
            _Session.may_be_retried,
            _Session.attempt <= MAX_RETRIES,
            _Session.created_at > at - _RETRIED_WITHIN,
            _Session.ended_at <= at - RETRY_PAUSES[0],
            eligibility.is_refinable(),
            ~superseded,
        )
    )


# -- who must wait --------------------------------------------------------------------------------


class Candidates:
    """Rules for agents at one moment, with what they need read once for all agents."""

    def __init__(
        self,
        agents: Collection[Agent],
        at: datetime,
        caps: CostCaps | None = None,
    ) -> None:
        self.agents, self._at = agents, at
        self._ids = [agent.id for agent in agents]
        self._all_caps = caps or CostCaps(at)

    # -- the rules -------------------------------------------------------------------------------

    def forbidden_reason(self, agent: Agent) -> str | None:
        """Return what forbids automatic sessions: a block, or the rolling floor; or None."""
        blocked = blocked_reason(agent, self._caps)
        return blocked or _Session.erosion_reason(agent, self.removed_tokens(agent))

    def automatic_skip_reason(self, agent: Agent) -> str | None:
        """Return why the clock may queue none: it is forbidden, or nothing changed; or None."""
        reason = self.forbidden_reason(agent)
        if reason is None and agent.id in self._unchanged_ids:
            return "nothing changed since the last session, which removed nothing"
        return reason

    def due_trigger(self, agent: Agent) -> AutomaticTrigger:
        """Return why an agent of which a session is due is asked."""
        refined_at = agent.last_refinement_at
        is_of_slot = refined_at is None or refined_at < agent.account.last_slot(self._at)
        return "weekly" if is_of_slot else "over_budget"

    def must_wait(self, agent: Agent) -> bool:
        """Tell whether it is too soon, a retry is pending, or nothing could be removed."""
        removed = self.removed_tokens(agent)
        if _Session.removable_of(agent.core_token_usage, agent, removed) == 0:
            return True
        latest = self._newest.get(agent.id)
        if latest is not None and self._is_failure_of_slot(latest):
            return True
        until = self.cools_down_until(agent)
        return until is not None and self._at < until

    def cools_down_until(self, agent: Agent) -> datetime | None:
        """Return when an agent over its budget may be asked again; None if it was never asked."""
        answered = self._answered[agent.id]
        if not answered or answered[0].ended_at is None:
            return None
        fruitless = list(takewhile(lambda session: not session.had_effect, answered))
        pause = cooldown(settings.current().cooldown_hours, len(fruitless))
        return answered[0].ended_at + pause

    def retry_of(self, agent: Agent) -> SessionRequest | None:
        """Return the next attempt after the agent's last session, if that failed and it is time."""
        failed = self._newest.get(agent.id)
        return failed.next_attempt() if failed and self._is_retry_due(failed) else None

    def _is_retry_due(self, session: RefinementSession) -> bool:
        retry_at = session.retry_at
        if retry_at is None or retry_at > self._at or not self._is_failure_of_slot(session):
            return False
        is_needed = session.trigger != "over_budget" or session.agent.is_over_budget
        return is_needed and not self.automatic_skip_reason(session.agent)

    def _is_failure_of_slot(self, session: RefinementSession) -> bool:
        if session.ended_at is None or not session.may_be_retried:
            return False
        return session.ended_at >= session.agent.account.last_slot(self._at)

    # -- what they need --------------------------------------------------------------------------

    @cached_property
    def _caps(self) -> CostCaps:
        self._all_caps.look_up(agent.account for agent in self.agents)
        return self._all_caps

    def removed_tokens(self, agent: Agent) -> int:
        return _Session.removed_by(self._ended_lately[agent.id]) + self._outside_sessions[agent.id]

    @cached_property
    def _outside_sessions(self) -> dict[int, int]:
        removed = removed_outside_sessions(Agent.id, self._at - ROLLING_WINDOW)
        those = select(Agent.id, removed.correlate(Agent).scalar_subquery())
        return {
            row[0]: row[1] for row in db.session.execute(those.where(in_ids(Agent.id, self._ids)))
        }

    @cached_property
    def _ended_lately(self) -> dict[int, list[RefinementSession]]:
        return _Session.ended_since(self._at - ROLLING_WINDOW, self._ids)

    @cached_property
    def _newest(self) -> dict[int, RefinementSession]:
        return {each.agent_id: each for each in self._latest(1, only_answered=False)}

    @cached_property
    def _answered(self) -> Mapping[int, Sequence[RefinementSession]]:
        answered: dict[int, list[RefinementSession]] = {id_: [] for id_ in self._ids}
        for session in self._latest(MAX_DOUBLINGS, only_answered=True):
            answered[session.agent_id].append(session)
        return answered

    def _latest(self, limit: int, *, only_answered: bool) -> Sequence[RefinementSession]:
        mine = select(_Session).where(_Session.agent_id == Agent.id)
        if only_answered:
            mine = mine.where(in_constants(_Session.status, ANSWERED))
        newest_first = mine.order_by(_Session.created_at.desc()).limit(limit)
        latest = newest_first.correlate(Agent).lateral()
        found = aliased(_Session, latest)
        return db.session.scalars(
            select(found)
            .select_from(Agent)
            .join(latest, true())
            .where(in_ids(Agent.id, self._ids))
            .order_by(found.created_at.desc())
        ).all()

    @cached_property
    def _unchanged_ids(self) -> frozenset[int]:
        """Agents whose last sessions, of the whole ledger, removed nothing, unchanged since."""
        last = [sessions[0] for sessions in self._answered.values() if sessions]
        quiet = [session.id for session in last if self._changed_nothing(session)]
        if not quiet:
            return frozenset()
        unchanged = select(_Session.agent_id).where(_Session.id.in_(quiet), ~_changed_since())
        return frozenset(db.session.scalars(unchanged))

    def _changed_nothing(self, session: RefinementSession) -> bool:
        return (
            session.status == "completed"
            and session.removed_nothing
            and session.undone_at is None
            and session.batch_through_id is None
            and _slots_between(session.agent.account, session.ended_at, self._at) <= MAX_QUIET_SLOTS
        )


def _changed_since() -> ColumnElement[bool]:
    """Match sessions whose agents' core memories or settings others changed since."""
    recorded = exists().where(
        AuditLog.agent_id == _Session.agent_id,
        AuditLog.created_at > _Session.started_at,
        AuditLog.session_id.is_distinct_from(_Session.id),
        or_(
            and_(AuditLog.mass_after.is_not(None), AuditLog.action != "memory_saved"),
            AuditLog.action == "agent_settings_update",
        ),
    )
    figures_changed = exists().where(
        Agent.id == _Session.agent_id,
        or_(
            Agent.core_count != _Session.memories_after,
            Agent.core_tokens != _Session.mass_after,
        ),
    )
    return or_(recorded, figures_changed)


def _slots_between(account: Account, ended_at: datetime | None, at: datetime) -> int:
    slots, slot = 0, account.last_slot(at)
    while ended_at is not None and slot > ended_at and slots <= MAX_QUIET_SLOTS:
        slots, slot = slots + 1, account.last_slot(slot - timedelta(microseconds=1))
    return slots


# -- sweeps, and sessions that somebody asks for ---------------------------------------------------

WAITING = "waiting for a session already"
RUNNING = "running a session just now"
LIVE_SESSION = "a session is waiting or running"
NOTHING_TO_REFINE = "no core memory that a session may change"
NOT_DUE = "refined since the last slot, and within the budget"


class Prospects(NamedTuple):
    """Which agents a sweep would ask, and why not the others, most of them first."""

    asked: Group | None
    left_out: list[Group]
    cost: Decimal | None

    @classmethod
    def of(cls, account: Account, at: datetime) -> "Prospects":
        groups = grouped_by(_reason(account, at), Agent.account_id == account.id)
        asked = groups.pop(None, None)
        return cls(asked, list(groups.values()), estimate(at, asked.ids if asked else []))


def due_for_sweep(account: Account, at: datetime) -> Select[int]:
    """Select agents that the current sweep has not asked yet."""
    asked_since = exists().where(
        _Session.agent_id == Agent.id,
        _Session.created_at >= account.sweep_requested_at,
    )
    return select(Agent.id).where(
        Agent.account_id == account.id, _reason(account, at).is_(None), ~asked_since
    )


def why_not_on_request() -> ColumnElement[str | None]:
    """Why a chosen agent gets no session; NULL if it gets one."""
    reasons = {
        LIVE_SESSION: has_live_session(),
        **eligibility.obstacles(automatic=False),
        NOTHING_TO_REFINE: ~eligibility.with_unlocked_core_memory(),
    }
    return eligibility.first_of(reasons | eligibility.unanswered())


def _reason(account: Account, at: datetime) -> ColumnElement[str | None]:
    slot_at, capped = account.last_slot(at), CostCaps(at).reason(account)
    is_running = Agent.last_session_status.is_not_distinct_from("running")
    reasons: dict[str, ColumnElement[bool]] = {
        WAITING: Agent.last_session_status == "queued",
        **eligibility.obstacles(automatic=True),
        NOTHING_TO_REFINE: ~eligibility.with_unlocked_core_memory(),
        NOT_DUE: ~eligibility.is_due_since(slot_at),
        **({capped: ~is_running} if capped else {ERODED: _Session.is_eroded(at)}),
        RUNNING: is_running,
    }
    return eligibility.first_of(reasons)


def estimate(at: datetime, agent_ids: Sequence[int]) -> Decimal | None:
    """Return what sessions of these agents may cost, by their recent means; None if unknown."""
    means = (
        select(func.avg(_Session.cost_usd).label("mean"))
        .where(
            in_ids(_Session.agent_id, agent_ids),
            _Session.created_at > at - LOOKS_BACK,
            _Session.llm_calls > 0,
            _Session.status.not_in(LIVE),
        )
        .group_by(_Session.agent_id)
        .subquery()
    )
    mean = db.session.scalar(select(func.avg(means.c.mean)))
    return None if mean is None else mean * len(agent_ids)
