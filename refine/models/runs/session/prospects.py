"""Which agents a sweep asks, why it skips the others, and why a chosen agent gets no session."""

from datetime import datetime
from functools import cache
from typing import NamedTuple

from sqlalchemy import ColumnElement, Select, case, exists, literal, select

from refine.models.agent import Agent
from refine.models.agent.answered import unanswered, why_unanswered
from refine.models.agent.groups import Group, grouped_by
from refine.models.people import Account
from refine.models.runs.session.estimate import Estimate, estimate
from refine.models.runs.session.scheduling import Candidates, has_live_session
from refine.models.runs.session.session import (
    ERODED,
    RefinementSession,
    SessionAlreadyLive,
    SessionRequest,
)
from refine.models.runs.spending import cost_cap_reason

WAITING = "waiting for a session already"
RUNNING = "running a session just now"
LIVE_SESSION = "a session is waiting or running"
NOTHING_TO_REFINE = "no core memory that a session may change"
NOT_DUE = "refined since the last slot, and within the budget"


class Prospects(NamedTuple):
    """What a sweep would do: whom it would ask, and why not the others, most of them first."""

    asked: Group | None
    left_out: list[Group]
    cost: Estimate

    @classmethod
    def of(cls, account: Account, at: datetime) -> "Prospects":
        """Return what a sweep of the account at this moment would do."""
        groups = grouped_by(_reason(account, at), Agent.account_id == account.id)
        asked = groups.pop(None, None)
        return cls(asked, list(groups.values()), estimate(at, asked.ids if asked else []))


def due_for_sweep(account: Account, at: datetime) -> Select[int]:
    """Return a query for the ids of the agents that the sweep under way has not asked yet."""
    asked_since = exists().where(
        RefinementSession.agent_id == Agent.id,
        RefinementSession.created_at >= account.sweep_requested_at,
    )
    return select(Agent.id).where(
        Agent.account_id == account.id, _reason(account, at).is_(None), ~asked_since
    )


def why_not_on_request() -> ColumnElement[str | None]:
    """Return why an agent that somebody has chosen gets no session; NULL if it gets one."""
    return case(
        (has_live_session(), literal(LIVE_SESSION)),
        (
            _has_nothing_to_refine() & Agent.is_available(automatic=False),
            literal(NOTHING_TO_REFINE),
        ),
        *((is_so, literal(reason)) for reason, is_so in unanswered().items()),
        else_=Agent.why_unavailable(automatic=False),
    )


@cache
def _has_nothing_to_refine() -> ColumnElement[bool]:
    return ~Agent.with_unlocked_core_memory()


@cache
def _obstacles() -> dict[str, ColumnElement[bool]]:
    return Agent.obstacles(automatic=True)


def _reason(account: Account, at: datetime) -> ColumnElement[str | None]:
    """Return why a sweep leaves an agent out, in its order; NULL if it does not."""
    slot_at, capped = account.last_slot(at), cost_cap_reason(account, at)
    is_running = Agent.last_session_status.is_not_distinct_from("running")
    reasons: dict[str, ColumnElement[bool]] = {
        WAITING: Agent.last_session_status == "queued",
        **_obstacles(),
        NOTHING_TO_REFINE: _has_nothing_to_refine(),
        NOT_DUE: ~(Agent.not_refined_since(slot_at) | Agent.over_budget),
        **({capped: ~is_running} if capped else {ERODED: RefinementSession.is_eroded(at)}),
        RUNNING: is_running,
    }
    return case(*((is_so, literal(reason)) for reason, is_so in reasons.items()))


def decide_for_request(agent: Agent, candidates: Candidates, at: datetime) -> SessionRequest | str:
    """Return the session that somebody asked for, or why the agent gets none.

    A live session whose worker was lost ends.
    """
    if (unavailable := agent.unavailable_reason(automatic=False)) is not None:
        return unavailable
    if (no_answer := why_unanswered(agent)) is not None:
        return no_answer
    if not candidates.has_work(agent):
        return NOTHING_TO_REFINE
    live = candidates.live_session_of(agent)
    try:
        if live is not None:
            live.make_room(at)
    except SessionAlreadyLive as refusal:
        return str(refusal)
    return SessionRequest(agent, "manual")
