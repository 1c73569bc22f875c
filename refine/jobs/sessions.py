"""The job that runs one session, and the ways to ask for one."""

import uuid
from collections.abc import Iterator
from typing import Any

from sqlalchemy import select

from refine import clock, settings
from refine.errors import Refused
from refine.extensions import db
from refine.jobs import stopping
from refine.jobs.queue import enqueue
from refine.models import Agent, RefinementSession, SessionAlreadyLive
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


def sweep() -> Iterator[tuple[Agent, str, RefinementSession | None]]:
    """Queue a session for every agent that needs one, one agent at a time.

    Yields the agent, what became of it in words, and its session if one was queued. One agent's
    failure touches no other. Sessions that wait without a worker knowing are handed over again.
    """
    for session in db.session.scalars(
        select(RefinementSession).where(RefinementSession.status == "queued")
    ).all():
        enqueue(session)
        yield session.agent, "was waiting; handed over again", session
    for agent_id in db.session.scalars(select(Agent.id).order_by(Agent.id)).all():
        agent = db.session.get_one(Agent, agent_id)
        yield agent, *_sweep_one(agent)


def _sweep_one(agent: Agent) -> tuple[str, RefinementSession | None]:
    at = clock.now()
    if not agent.needs_refinement(at) or agent.account.paused:
        db.session.commit()
        return "needs none", None
    if RefinementSession.is_eroded(agent, at):
        db.session.commit()
        return "skipped: sessions of the last 30 days removed as much as they may", None
    trigger: Trigger = "weekly" if agent.slot_is_due(at) else "over_budget"
    try:
        session = refine_later(agent, trigger)
    except SessionAlreadyLive as live:
        db.session.rollback()
        return f"already live: {live.session_id}", None
    except Refused as refusal:
        db.session.rollback()
        return str(refusal), None
    return f"queued ({trigger})", session
