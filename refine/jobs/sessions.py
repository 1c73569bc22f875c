"""The job that runs one session, and the ways to ask for one."""

import uuid
from collections.abc import Iterator
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from refine import clock, settings
from refine.errors import Refused, Unreachable
from refine.extensions import db, let_go
from refine.jobs import stopping
from refine.jobs.dispatch import dispatch, make_room
from refine.models import Account, Agent, RefinementSession, User
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
    finally:
        make_room()


def refine_later(agent: Agent, trigger: Trigger, **fields: Any) -> RefinementSession:
    """Queue a session for the agent, commit, hand it to a worker.

    Raises SessionAlreadyLive; or Unreachable, with the session safely queued, where it cannot be
    handed over now: the clock does it later.
    """
    session = RefinementSession.queue(agent, trigger, **fields)
    db.session.commit()
    try:
        dispatch()
    except DBAPIError:
        let_go()
        raise Unreachable(
            "the session is queued, but the database was too busy to hand it over; the clock does "
            "it later"
        ) from None
    return session


def sweep(
    account: Account | None = None, *, user: User | None = None
) -> Iterator[tuple[Agent, str]]:
    """Queue a session for every agent that needs one; yield each agent and what became of it.

    Of every account, or of one; ``user``: who asked for it in the dashboard.

    One agent's failure touches no other. Cool-downs are the clock's: a sweep by hand asks every
    agent that is due, also one that declined a moment ago. Raises Unreachable at the end where
    Redis is away: all that was queued stays so.
    """
    agents = select(Agent.id).order_by(Agent.id)
    if account is not None:
        agents = agents.where(Agent.account_id == account.id)
    for agent_id in db.session.scalars(agents).all():
        agent = db.session.get_one(Agent, agent_id)
        try:
            outcome = _sweep_one(agent, user)
        except Refused as refusal:
            outcome = str(refusal)
        except DBAPIError as error:
            outcome = f"failed: {error.args[0]}"
        db.session.rollback()
        yield agent, outcome
    dispatch()


def _sweep_one(agent: Agent, user: User | None) -> str:
    at = clock.now()
    live = RefinementSession.live_of(agent)
    if live is not None and live.status == "queued":
        live.dispatched_at = None
        db.session.commit()
        return "was waiting; handed over again"
    if agent.account.paused:
        return "its account is paused"
    if not agent.needs_refinement(at):
        return "needs none"
    if (forbidden := RefinementSession.why_forbidden(agent, at)) is not None:
        return f"skipped: {forbidden}"
    trigger: Trigger = "weekly" if agent.slot_is_due(at) else "over_budget"
    RefinementSession.queue(agent, trigger, user=user, at=at)
    db.session.commit()
    return f"queued ({trigger})"
