"""Erasing an agent for good: a week after somebody asked for it, unless it is called off."""

from datetime import datetime, timedelta

from sqlalchemy import Select, func, select
from sqlalchemy.orm import joinedload

from refine import clock
from refine.errors import Refused
from refine.extensions import UtcDateTime, db, later_now
from refine.models.agent import Agent
from refine.models.agent.agent import ERASED
from refine.models.audit import AuditLog, ChainHead
from refine.models.audit.record import Actor
from refine.models.integrity import verify_chains

DELAY = timedelta(days=7)
_REQUESTED = "agent_erasure_requested"
_MINUTE = "%Y-%m-%d %H:%M UTC"


def request(agent: Agent, *, user: Actor | None = None, at: datetime | None = None) -> datetime:
    """Have the clock erase the agent, and tell it so; return when. ``user``: None for operators."""
    agent.lock()
    if agent.is_erased:
        raise Refused(ERASED)
    if agent.erase_at is not None:
        raise Refused(f"the agent is to be erased on {agent.erase_at:{_MINUTE}} already")
    agent.erase_at = erase_at = (at or later_now()) + DELAY
    what = f"asked to erase me for good: on {erase_at:{_MINUTE}}, unless it is called off"
    _tell(agent, _REQUESTED, what, user, at, erase_at=clock.iso(erase_at))
    return erase_at


def call_off(agent: Agent, *, user: Actor | None = None, at: datetime | None = None) -> None:
    agent.lock()
    if agent.erase_at is None:
        raise Refused("the agent is not to be erased")
    agent.erase_at = None
    _tell(agent, "agent_erasure_called_off", "called off that I am erased", user, at)


def _tell(
    agent: Agent, action: str, what: str, user: Actor | None, at: datetime | None, **data: object
) -> None:
    by = "user" if user is not None else "command line"
    agent.record(action, user=user, data={"by": by, **data}, at=at)
    who = f"Admin {user.id}" if user is not None else "An operator"
    agent.ledger.add_journal_note(f"{who} {what}.", at)


def last_request(agent: Agent) -> AuditLog | None:
    """Return the record of who asked last."""
    asked = select(AuditLog).where(AuditLog.agent_id == agent.id, AuditLog.action == _REQUESTED)
    newest_first = asked.order_by(AuditLog.sequence.desc()).options(joinedload(AuditLog.user))
    return db.session.scalars(newest_first.limit(1)).one_or_none()


def due(at: datetime) -> Select[int]:
    """Select the agents to erase, by the database's clock too: a wrong one destroys nothing."""
    by_both = func.least(at, func.clock_timestamp(type_=UtcDateTime()))
    return select(Agent.id).where(Agent.erase_at <= by_both)


def carry_out(agent: Agent, at: datetime) -> bool:
    """Erase the locked agent; leave it if its row, or anything of its chain, was altered or put
    back: an old row may bear a date that was called off.
    """
    chain = select(ChainHead.id).where(ChainHead.agent_id == agent.id)
    results, asked = verify_chains(db.session.scalars(chain).all()), last_request(agent)
    if asked is None or any(result.problem for result in results):
        return False
    agent.erase(at, by=asked.by)
    return True
