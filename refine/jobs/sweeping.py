"""Sweeps: a session is queued for every agent that needs one, whatever slots and cool-downs say.

``refine sweep`` asks all agents. *Run now* asks those of one account: a first batch at once, and
the clock goes on with the others.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import select

from refine import clock
from refine.errors import RefineError
from refine.extensions import db
from refine.jobs.batches import BATCH, Failed, in_parts
from refine.models import Account, Agent, RefinementSession, SessionAlreadyLive, Sweep, User
from refine.models.runs.session import Wanted
from refine.models.runs.session.prospects import NOTHING_TO_REFINE
from refine.models.runs.session.scheduling import Candidates
from refine.models.runs.spending import CostCaps
from refine.models.runs.sweep import Work

_DISPATCHED_AGAIN = "already waiting, dispatched again"


class Swept(NamedTuple):
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


class Turn(NamedTuple):
    """What one batch of a sweep did, and how many agents still wait for theirs."""

    swept: Sequence[Swept]
    waiting: int


def sweep() -> Iterator[Swept]:
    """Queue a session for every agent that needs one; yield the outcome for each agent.

    One agent's failure touches no other. The caller dispatches.
    """
    caps, after_id = CostCaps(clock.now()), 0
    following = select(Agent.id).order_by(Agent.id).limit(BATCH)
    while ids := db.session.scalars(following.where(Agent.id > after_id)).all():
        after_id = ids[-1]
        swept = list(_swept(in_parts(ids, partial(_serve, caps))))
        yield from swept
        # whom somebody held just then is waited for alone: nobody else waits with them
        for id_ in sorted({*ids} - {each.agent_id for each in swept}):
            yield from _swept(in_parts([id_], partial(_serve, caps, wait=True)))


def run_now(account: Account, user: User) -> Turn:
    """Begin a sweep of the account on the user's request, or go on with the one under way."""
    sweep_id = Sweep.request(account, user).id
    db.session.commit()
    return go_on(sweep_id, CostCaps(clock.now()))


def begin_work(
    account: Account, user: User, work: Work, agent_ids: Sequence[int], value: str | None = None
) -> Turn:
    """Begin to do this work for these agents of the account, and do it for the first of them."""
    sweep_id = Sweep.request_work(account, user, work, agent_ids, value).id
    db.session.commit()
    return go_on(sweep_id, CostCaps(clock.now()))


def go_on(sweep_id: int, caps: CostCaps) -> Turn:
    """Let the next agents of a sweep have their turn, and end it after the last."""
    under_way = Sweep.locked(sweep_id)
    # first, as its user may have lost their rights since
    waiting = under_way.end_if_over() if under_way is not None else 0
    ids = under_way.next_ids(BATCH) if under_way is not None and waiting else []
    swept = list(_swept(_turns(sweep_id, caps, ids)))
    under_way = Sweep.locked(sweep_id)
    waiting = under_way.end_if_over() if under_way is not None else 0
    db.session.commit()
    return Turn(swept, waiting)


def _turns(sweep_id: int, caps: CostCaps, ids: Sequence[int]) -> Iterator[list[Swept] | Failed]:
    for outcome in in_parts(ids, partial(_take_turn, sweep_id, caps)) if ids else ():
        if isinstance(outcome, Failed) and (under_way := Sweep.locked(sweep_id)) is not None:
            under_way.note({outcome.agent_id: False})
            db.session.commit()
        yield outcome


def _take_turn(sweep_id: int, caps: CostCaps, ids: Sequence[int]) -> list[Swept]:
    """Serve those of these agents whose turn has not come yet, and note that it has."""
    under_way = Sweep.locked(sweep_id)
    if under_way is None or not (ids := under_way.still_waiting(ids)):
        return []
    wait = ids[0] in under_way.held_ids
    if under_way.work is None:
        served = _serve(caps, ids, user=under_way.user, wait=wait)
    else:
        served = _work(under_way, ids, wait=wait)
    is_done = {each.agent_id: each.is_done for each in served}
    under_way.note({id_: is_done.get(id_) for id_ in ids})
    return served


def _work(under_way: Sweep, ids: Sequence[int], *, wait: bool) -> list[Swept]:
    """Do for these agents what somebody asked for them, in this transaction."""
    mine = select(Agent.id).where(Agent.account_id == under_way.account_id)
    agents, at, user = Agent.lock_due(mine, ids, wait=wait), clock.now(), under_way.user
    if under_way.work == "refine":
        candidates = Candidates(agents, at)
        decided = {agent: _wanted_by_hand(agent, candidates, at) for agent in agents}
        wanted = [each for each in decided.values() if isinstance(each, Wanted)]
        RefinementSession.queue_all(wanted, user=user, at=at)
        return [_as_swept(agent, each) for agent, each in decided.items()]
    changed = Agent.configure_all(agents, user=user, at=at, **_settings(under_way))
    return [
        Swept(agent.id, agent.name, "changed", is_changed=True)
        if agent in changed
        else Swept(agent.id, agent.name, "nothing to change")
        for agent in agents
    ]


def _wanted_by_hand(agent: Agent, candidates: Candidates, at: datetime) -> Wanted | str:
    """Return the session that somebody asked for, or why the agent gets none."""
    if (unavailable := agent.unavailable_reason(automatic=False)) is not None:
        return unavailable
    if not candidates.has_work(agent):
        return NOTHING_TO_REFINE
    return _with_room(Wanted(agent, "manual"), candidates, at)


def _settings(under_way: Sweep) -> dict[str, Any]:
    """Return the settings that a sweep is to change."""
    value = under_way.value
    match under_way.work:
        case "budget":
            return {"core_token_budget": int(value or 0)}
        case "threshold":
            return {"refinement_threshold": value}
    return {"paused": under_way.work == "pause"}


def _swept(outcomes: Iterable[list[Swept] | Failed]) -> Iterator[Swept]:
    for outcome in outcomes:
        if not isinstance(outcome, Failed):
            yield from outcome
            continue
        is_refused = isinstance(outcome.fault, RefineError)
        said = outcome.said if is_refused else f"failed: {outcome.said}"
        yield Swept(outcome.agent_id, db.session.get_one(Agent, outcome.agent_id).name, said)


def _serve(
    caps: CostCaps, ids: Sequence[int], *, user: User | None = None, wait: bool = False
) -> list[Swept]:
    """Queue sessions for those of these agents that need one, in this transaction."""
    agents = Agent.lock_due(select(Agent.id), ids, wait=wait)
    at = clock.now()
    candidates = Candidates(agents, at, caps)
    decided = [(agent, _decided(agent, candidates, at)) for agent in agents]
    wanted = [each for _, each in decided if isinstance(each, Wanted)]
    RefinementSession.queue_all(wanted, user=user, at=at)
    RefinementSession.dispatch_again(
        [agent for agent, each in decided if each == _DISPATCHED_AGAIN]
    )
    return [_as_swept(agent, each) for agent, each in decided]


def _as_swept(agent: Agent, decided: Wanted | str) -> Swept:
    if isinstance(decided, Wanted):
        return Swept(agent.id, agent.name, f"queued ({decided.trigger})", is_queued=True)
    return Swept(agent.id, agent.name, decided)


def _decided(agent: Agent, candidates: Candidates, at: datetime) -> Wanted | str:
    """Return the session that the agent needs, or why it gets none."""
    live = candidates.live_session_of(agent)
    if live is not None and live.status == "queued":
        return _DISPATCHED_AGAIN
    if (unavailable := agent.unavailable_reason(automatic=True)) is not None:
        return unavailable
    if (trigger := candidates.due_trigger(agent)) is None:
        return "no session needed"
    if (forbidden := candidates.forbidden_reason(agent)) is not None:
        return f"skipped: {forbidden}"
    return _with_room(Wanted(agent, trigger), candidates, at)


def _with_room(wanted: Wanted, candidates: Candidates, at: datetime) -> Wanted | str:
    """Return the session, or that there is a live one; one whose worker was lost ends."""
    live = candidates.live_session_of(wanted.agent)
    try:
        if live is not None:
            live.make_room(at)
    except SessionAlreadyLive as refusal:
        return str(refusal)
    return wanted
