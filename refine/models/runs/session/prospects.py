"""Which agents a sweep queues, why it skips the others, and what the sessions may cost."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from sqlalchemy import ColumnElement, Select, case, exists, func, literal, select

from refine.extensions import db
from refine.models.agent import Agent, eligibility
from refine.models.agent.eligibility import Group, grouped_by, unanswered, why_unanswered
from refine.models.columns import in_ids
from refine.models.people import Account
from refine.models.runs.run import LIVE
from refine.models.runs.session.scheduling import Candidates, has_live_session
from refine.models.runs.session.session import (
    ERODED,
    RefinementSession,
    SessionAlreadyLive,
    SessionRequest,
)
from refine.models.runs.spending import CostCaps

LOOKS_BACK = timedelta(days=90)

_Session = RefinementSession


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
        RefinementSession.agent_id == Agent.id,
        RefinementSession.created_at >= account.sweep_requested_at,
    )
    return select(Agent.id).where(
        Agent.account_id == account.id, _reason(account, at).is_(None), ~asked_since
    )


def why_not_on_request() -> ColumnElement[str | None]:
    """Why a chosen agent gets no session; NULL if it gets one."""
    return case(
        (has_live_session(), literal(LIVE_SESSION)),
        (
            ~eligibility.with_unlocked_core_memory() & eligibility.is_available(automatic=False),
            literal(NOTHING_TO_REFINE),
        ),
        *((is_so, literal(reason)) for reason, is_so in unanswered().items()),
        else_=eligibility.why_unavailable(automatic=False),
    )


def _reason(account: Account, at: datetime) -> ColumnElement[str | None]:
    slot_at, capped = account.last_slot(at), CostCaps(at).reason(account)
    is_running = Agent.last_session_status.is_not_distinct_from("running")
    reasons: dict[str, ColumnElement[bool]] = {
        WAITING: Agent.last_session_status == "queued",
        **eligibility.obstacles(automatic=True),
        NOTHING_TO_REFINE: ~eligibility.with_unlocked_core_memory(),
        NOT_DUE: ~(eligibility.not_refined_since(slot_at) | Agent.over_budget),
        **({capped: ~is_running} if capped else {ERODED: RefinementSession.is_eroded(at)}),
        RUNNING: is_running,
    }
    return case(*((is_so, literal(reason)) for reason, is_so in reasons.items()))


def decide_for_request(agent: Agent, candidates: Candidates, at: datetime) -> SessionRequest | str:
    """Return a session request, or why there is none; ends a live session with a lost worker."""
    if (unavailable := eligibility.unavailable_reason(agent, automatic=False)) is not None:
        return unavailable
    if (no_answer := why_unanswered(agent)) is not None:
        return no_answer
    if not candidates.has_work(agent):
        return NOTHING_TO_REFINE
    live = candidates.live_session_of(agent)
    try:
        if live is not None:
            live.end_if_lost_or_raise(at)
    except SessionAlreadyLive as refusal:
        return str(refusal)
    return SessionRequest(agent, "manual")
