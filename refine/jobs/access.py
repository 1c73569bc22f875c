"""The job that asks an agent for access to its memories, and what the tick does about requests."""

import uuid
from contextlib import suppress
from datetime import timedelta

from sqlalchemy import func, select

from refine import settings
from refine.access.asking import ask_for_access as ask
from refine.errors import Unreachable
from refine.extensions import db
from refine.jobs import stopping
from refine.jobs.queue import ASKED, enqueue_access, queue, redis_connection
from refine.models import AccessGrant, Agent, User
from refine.models.access import Wish

# A worker takes a job from Redis a moment before it claims the request in the database.
_ON_ITS_WAY = timedelta(seconds=30)


class AccessFault(Exception):
    """A fault in Refine ended a request; the message carries its id and the fault's class alone."""


def ask_for_access(grant_id: str) -> None:
    """Ask the agent of the request of this id; quietly nothing where it was asked before."""
    try:
        ask(uuid.UUID(grant_id), settings.current(), is_stopping=stopping.is_asked)
    except Exception as fault:
        # RQ keeps tracebacks in Redis, and a message may quote what it should not
        raise AccessFault(f"access {grant_id}: {type(fault).__name__}") from None


def request_access(agent: Agent, user: User, wish: Wish) -> AccessGrant:
    """Add the user's request, commit, hand it to a worker; where Redis is away, the tick does it.

    Raises Refused, and AccessOpenAlready where there is one.
    """
    requested = AccessGrant.request(agent, user, wish)
    grant_id = requested.id
    db.session.commit()
    with suppress(Unreachable), redis_connection() as connection:
        enqueue_access(grant_id, connection)
    return requested


def dispatch_access() -> int:
    """Hand over the requests that Redis lost, or never had; return how many.

    Raises Unreachable where Redis is away: they stay as they are, and lose nothing.
    """
    waiting = db.session.scalars(
        select(AccessGrant.id)
        .where(
            AccessGrant.status == "requested",
            AccessGrant.asked_at.is_(None),
            AccessGrant.created_at <= func.clock_timestamp() - _ON_ITS_WAY,
        )
        .order_by(AccessGrant.created_at)
    ).all()
    db.session.rollback()
    if not waiting:
        return 0
    with redis_connection() as connection:
        in_redis = set(queue(ASKED, connection).job_ids)
        lost = [grant_id for grant_id in waiting if str(grant_id) not in in_redis]
        for grant_id in lost:
            enqueue_access(grant_id, connection)
    return len(lost)
