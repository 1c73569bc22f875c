"""The job that runs one session, and the ways to ask for one."""

import uuid
from collections.abc import Iterator
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from refine import clock, settings
from refine.errors import Refused
from refine.extensions import db
from refine.jobs import stopping
from refine.jobs.queue import enqueue
from refine.models import Agent, RefinementSession
from refine.models.session import Trigger
from refine.refinement.loop import refine


class SessionFault(Exception):
    """A fault in Refine ended a session; the message carries its id and the fault's class alone."""


def refine_session(session_id: str) -> None:
    """Run the queued session of this id; quietly nothing where it is not queued any more."""
    try:
        refine(uuid.UUID(session_id), settings.current(), is_stopping=stopping.is_asked)
    except Exception as fault:
        # RQ keeps tracebacks in Redis, and a message may quote what it should not
        raise SessionFault(f"session {session_id}: {type(fault).__name__}") from None


def refine_later(agent: Agent, trigger: Trigger, **fields: Any) -> RefinementSession:
    """Queue a session for the agent, commit, hand it to a worker.

    Raises SessionAlreadyLive, or Unreachable with the session safely queued.
    """
    session = RefinementSession.queue(agent, trigger, **fields)
    db.session.commit()
    enqueue(session)
    return session


def sweep() -> Iterator[tuple[Agent, str]]:
    """Queue a session for every agent that needs one; yield each agent and what became of it.

    One agent's failure touches no other. Sessions that wait are handed over again, because a
    flushed Redis knows nothing of them. Cool-downs are the clock's: a sweep by hand asks every
    agent that is due, also one that declined a moment ago.
    """
    for agent_id in db.session.scalars(select(Agent.id).order_by(Agent.id)).all():
        agent = db.session.get_one(Agent, agent_id)
        try:
            outcome = _sweep_one(agent)
        except Refused as refusal:
            outcome = str(refusal)
        except DBAPIError as error:
            outcome = f"failed: {error.args[0]}"
        db.session.rollback()
        yield agent, outcome


def _sweep_one(agent: Agent) -> str:
    at = clock.now()
    live = RefinementSession.live_of(agent)
    if live is not None and live.status == "queued":
        enqueue(live)
        return "was waiting; handed over again"
    if agent.account.paused:
        return "its account is paused"
    if not agent.needs_refinement(at):
        return "needs none"
    if RefinementSession.is_eroded(agent, at):
        return "skipped: sessions of the last 30 days removed as much as they may"
    trigger: Trigger = "weekly" if agent.slot_is_due(at) else "over_budget"
    refine_later(agent, trigger)
    return f"queued ({trigger})"
