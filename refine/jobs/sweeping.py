"""Sweeps: a session is queued for every agent that needs one, whatever slots and cool-downs say.

``refine sweep`` asks all agents. *Run now* asks those of one account: a first batch at once, and
the clock continues with the others.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import select

from refine import clock
from refine.errors import RefineError
from refine.extensions import db
from refine.jobs.batches import BATCH, Failed, in_parts
from refine.models import Account, Agent, RefinementSession, Sweep, User
from refine.models.runs.session import SessionRequest
from refine.models.runs.session.prospects import (
    DISPATCHED_AGAIN,
    decided_in_sweep,
    decided_on_request,
)
from refine.models.runs.session.scheduling import Candidates
from refine.models.runs.spending import CostCaps
from refine.models.runs.sweep import Work


class SweepOutcome(NamedTuple):
    """What a sweep did for an agent, in words.

    ``is_queued``: it queued a session; ``is_changed``: it changed settings.
    """

    agent_id: int
    name: str
    outcome: str
    is_queued: bool = False
    is_changed: bool = False

    @property
    def is_done(self) -> bool:
        """Whether it did what it was to do."""
        return self.is_queued or self.is_changed


class SweepBatch(NamedTuple):
    """What one batch of a sweep did, and how many agents still wait for theirs."""

    outcomes: Sequence[SweepOutcome]
    waiting: int


def sweep() -> Iterator[SweepOutcome]:
    """Queue a session for every agent that needs one; yield the outcome for each agent.

    One agent's failure touches no other. The caller dispatches.
    """
    caps, after_id = CostCaps(clock.now()), 0
    following = select(Agent.id).order_by(Agent.id).limit(BATCH)
    while ids := db.session.scalars(following.where(Agent.id > after_id)).all():
        after_id = ids[-1]
        outcomes = list(_of_each_agent(in_parts(ids, partial(_queue_needed, caps))))
        yield from outcomes
        # whom somebody held just then is waited for alone: nobody else waits with them
        for id_ in sorted({*ids} - {each.agent_id for each in outcomes}):
            yield from _of_each_agent(in_parts([id_], partial(_queue_needed, caps, wait=True)))


def run_now(account: Account, user: User) -> SweepBatch:
    """Begin a sweep of the account on the user's request, or go on with the one under way."""
    sweep_id = Sweep.request(account, user).id
    db.session.commit()
    return go_on(sweep_id, CostCaps(clock.now()))


def begin_work(
    account: Account, user: User, work: Work, agent_ids: Sequence[int], value: str | None = None
) -> SweepBatch:
    """Begin to do this work for these agents of the account, and do it for the first of them."""
    sweep_id = Sweep.request_work(account, user, work, agent_ids, value).id
    db.session.commit()
    return go_on(sweep_id, CostCaps(clock.now()))


def go_on(sweep_id: int, caps: CostCaps) -> SweepBatch:
    """Let the next agents of a sweep have their turn, and end it after the last."""
    current = Sweep.locked(sweep_id)
    # first, as its user may have lost their rights since
    waiting = current.end_if_over() if current is not None else 0
    ids = current.next_ids(BATCH) if current is not None and waiting else []
    outcomes = list(_of_each_agent(_in_turn(sweep_id, caps, ids)))
    current = Sweep.locked(sweep_id)
    waiting = current.end_if_over() if current is not None else 0
    db.session.commit()
    return SweepBatch(outcomes, waiting)


def _in_turn(
    sweep_id: int, caps: CostCaps, ids: Sequence[int]
) -> Iterator[list[SweepOutcome] | Failed]:
    """Serve these agents; one for which that fails has had its turn, too."""
    for outcome in in_parts(ids, partial(_work_on, sweep_id, caps)) if ids else ():
        if isinstance(outcome, Failed) and (current := Sweep.locked(sweep_id)) is not None:
            current.note({outcome.agent_id: False})
            db.session.commit()
        yield outcome


def _work_on(sweep_id: int, caps: CostCaps, ids: Sequence[int]) -> list[SweepOutcome]:
    """Serve those of these agents whose turn has not come yet, and note that it has."""
    current = Sweep.locked(sweep_id)
    if current is None or not (ids := current.still_waiting(ids)):
        return []
    wait = ids[0] in current.held_ids
    if current.work is None:
        outcomes = _queue_needed(caps, ids, user=current.user, wait=wait)
    else:
        outcomes = _do_work(current, ids, wait=wait)
    is_done = {each.agent_id: each.is_done for each in outcomes}
    current.note({id_: is_done.get(id_) for id_ in ids})
    return outcomes


def _do_work(current: Sweep, ids: Sequence[int], *, wait: bool) -> list[SweepOutcome]:
    """Do for these agents what somebody asked for them, in this transaction."""
    mine = select(Agent.id).where(Agent.account_id == current.account_id)
    agents, at, user = Agent.lock_due(mine, ids, wait=wait), clock.now(), current.user
    if current.work == "refine":
        candidates = Candidates(agents, at)
        decided = {agent: decided_on_request(agent, candidates, at) for agent in agents}
        return _queued(decided, user, at)
    changed = Agent.configure_all(agents, user=user, at=at, **_settings(current))
    return [
        SweepOutcome(agent.id, agent.name, "changed", is_changed=True)
        if agent in changed
        else SweepOutcome(agent.id, agent.name, "nothing to change")
        for agent in agents
    ]


def _settings(current: Sweep) -> dict[str, Any]:
    """Return the settings that a sweep is to change."""
    value = current.value
    match current.work:
        case "budget":
            return {"core_token_budget": int(value or 0)}
        case "threshold":
            return {"refinement_threshold": value}
    return {"paused": current.work == "pause"}


def _of_each_agent(parts: Iterable[list[SweepOutcome] | Failed]) -> Iterator[SweepOutcome]:
    """Yield the outcome for each agent, a failure in words."""
    for part in parts:
        if not isinstance(part, Failed):
            yield from part
            continue
        said = part.said if isinstance(part.fault, RefineError) else f"failed: {part.said}"
        yield SweepOutcome(part.agent_id, db.session.get_one(Agent, part.agent_id).name, said)


def _queue_needed(
    caps: CostCaps, ids: Sequence[int], *, user: User | None = None, wait: bool = False
) -> list[SweepOutcome]:
    """Queue sessions for those of these agents that need one, in this transaction."""
    agents = Agent.lock_due(select(Agent.id), ids, wait=wait)
    at = clock.now()
    candidates = Candidates(agents, at, caps)
    decided = {agent: decided_in_sweep(agent, candidates, at) for agent in agents}
    outcomes = _queued(decided, user, at)
    waiting = [agent for agent, each in decided.items() if each == DISPATCHED_AGAIN]
    RefinementSession.dispatch_again(waiting)
    return outcomes


def _queued(
    decided: Mapping[Agent, SessionRequest | str], user: User | None, at: datetime
) -> list[SweepOutcome]:
    """Queue the sessions that were decided on; return the outcome for each agent."""
    requests = [each for each in decided.values() if isinstance(each, SessionRequest)]
    RefinementSession.queue_all(requests, user=user, at=at)
    return [_outcome_of(agent, each) for agent, each in decided.items()]


def _outcome_of(agent: Agent, decided: SessionRequest | str) -> SweepOutcome:
    if isinstance(decided, SessionRequest):
        return SweepOutcome(agent.id, agent.name, f"queued ({decided.trigger})", is_queued=True)
    return SweepOutcome(agent.id, agent.name, decided)
