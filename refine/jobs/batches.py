"""Serves many agents in batches of one transaction; failed ones are cut in two."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Literal, NamedTuple, TypeVar

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from refine import clock
from refine.errors import RefineError
from refine.extensions import db, safe_rollback
from refine.models import Agent, RefinementSession, User, attention
from refine.models.agent import configuring
from refine.models.columns import in_ids
from refine.models.runs.session.scheduling import why_not_on_request
from refine.models.runs.session.session import SessionRequest
from refine.outages import database_trouble, may_pass

# All agents of a batch are locked meanwhile: this many take a fraction of a second.
BATCH = 100

Outcome = TypeVar("Outcome")


class Failed(NamedTuple):
    agent_id: int
    fault: Exception


def safe_message(fault: Exception) -> str:
    """Return the fault's message, or only its class if the message might quote content."""
    if isinstance(fault, DBAPIError) and (trouble := database_trouble(fault)) is not None:
        return f"the database was {trouble}"
    is_ours = isinstance(fault, DBAPIError | RefineError)
    return str(fault.args[0]) if is_ours and fault.args else type(fault).__name__


def in_parts(
    ids: Sequence[int], serve: Callable[[Sequence[int]], Outcome], *, is_last: bool = False
) -> Iterator[Outcome | Failed]:
    """Serve these agents, and commit; yield what ``serve`` returned, once or for each part."""
    try:
        served = serve(ids)
        db.session.commit()
    except Exception as fault:
        safe_rollback()
        db.session.connection()  # fails if the database is away: then nobody can be served
        if len(ids) > 1:
            half = len(ids) // 2
            yield from in_parts(ids[:half], serve)
            yield from in_parts(ids[half:], serve)
        elif may_pass(fault) and not is_last:
            yield from in_parts(ids, serve, is_last=True)
        else:
            yield Failed(ids[0], fault)
    else:
        yield served


# Actions on many agents, and how long those last that put agents aside.
Work = Literal[
    "refine", "pause", "resume", "acknowledge", "snooze_day", "snooze_week", "snooze_slot", "return"
]
_UNTIL: dict[Work, Callable[[Agent, datetime], datetime | None]] = {
    "acknowledge": lambda agent, at: None,
    "snooze_day": lambda agent, at: at + timedelta(days=1),
    "snooze_week": lambda agent, at: at + timedelta(weeks=1),
    "snooze_slot": lambda agent, at: agent.account.next_slot(at),
}
PUTTING_ASIDE = (*_UNTIL, "return")
NOTHING_OPEN = "no need of attention"
NOT_PUT_ASIDE = "not put aside"

# Why nothing was done for an agent, or None.
_Outcomes = list[str | None]


class BulkOutcome(NamedTuple):
    done: int
    skipped: Counter[str]


def act_on(agent_ids: Sequence[int], work: Work, user: User) -> BulkOutcome:
    """Do this for each agent that the user may change, and commit every batch."""
    ordered, outcomes = sorted(agent_ids), _Outcomes()
    for start in range(0, len(ordered), BATCH):
        batch = ordered[start : start + BATCH]
        for part in in_parts(batch, partial(_act_on_batch, work, user)):
            if isinstance(part, Failed):
                said = safe_message(part.fault)
                is_ours = isinstance(part.fault, RefineError)
                outcomes.append(said if is_ours else f"failed: {said}")
            else:
                outcomes += part
    skipped = Counter(reason for reason in outcomes if reason is not None)
    return BulkOutcome(len(outcomes) - skipped.total(), skipped)


def _act_on_batch(work: Work, user: User, ids: Sequence[int]) -> _Outcomes:
    agents, at = Agent.lock_due(select(Agent.id), ids, wait=True), clock.now()
    refused = [user.inability_reason(agent.account_id) for agent in agents]
    allowed = [agent for agent, reason in zip(agents, refused, strict=True) if reason is None]
    act = _refine if work == "refine" else _put_aside if work in PUTTING_ASIDE else _pause
    return [*filter(None, refused), *act(work, user, allowed, at)]


def _refine(_work: Work, user: User, agents: Sequence[Agent], at: datetime) -> _Outcomes:
    those = select(Agent.id, why_not_on_request().label("why_not"))
    found = db.session.execute(those.where(in_ids(Agent.id, [agent.id for agent in agents])))
    why_not = {row.id: row.why_not for row in found}
    requests = [SessionRequest(each, "manual") for each in agents if why_not[each.id] is None]
    RefinementSession.queue_all(requests, user=user, at=at)
    return list(why_not.values())


def _pause(work: Work, user: User, agents: Sequence[Agent], at: datetime) -> _Outcomes:
    changed = configuring.configure_all(agents, user=user, at=at, paused=work == "pause")
    return [None if agent in changed else "nothing to change" for agent in agents]


def _put_aside(work: Work, user: User, agents: Sequence[Agent], at: datetime) -> _Outcomes:
    if work == "return":
        done, why_not = attention.take_back(agents, user=user, at=at), NOT_PUT_ASIDE
    else:
        done = attention.put_aside(agents, lambda agent: _UNTIL[work](agent, at), user=user, at=at)
        why_not = NOTHING_OPEN
    return [None if agent.id in done else why_not for agent in agents]
