"""Handing queued sessions to the workers: all that somebody asked for, of the rest a few at a time.

The database says what waits, Redis only passes it on. So that a sweep of a thousand agents does
not keep a person waiting, one of several workers is left free of sessions that nobody asked for;
each that ends makes room for the next.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from redis import Redis
from sqlalchemy import ColumnElement, Text, cast, func, or_, select, text, update

from refine import clock
from refine.extensions import db
from refine.jobs.queue import ASKED, SWEPT, enqueue, live_workers, queue, redis_connection
from refine.models import RefinementSession
from refine.models.session import AUTOMATIC_TRIGGERS

# A worker takes a job from Redis a moment before it claims the session in the database.
_ON_ITS_WAY = timedelta(seconds=30)

# One dispatcher at a time, so that two do not fill the same room.
_DISPATCHING = text("SELECT pg_advisory_xact_lock(hashtext('refine.dispatch'))")

_IS_SWEPT = RefinementSession.trigger.in_(AUTOMATIC_TRIGGERS)


def dispatch(at: datetime | None = None) -> int:
    """Hand over what may be handed over now, and commit; return how many sessions.

    Raises Unreachable where Redis is away: everything stays queued and loses nothing.
    """
    at = at or clock.now()
    with redis_connection() as connection:
        db.session.execute(_DISPATCHING)
        _take_back_what_redis_lost(connection, at)
        waiting = [*_waiting(~_IS_SWEPT), *_waiting(_IS_SWEPT, _room(connection))]
        for session in waiting:
            enqueue(session, connection)
            session.dispatched_at = at
        db.session.commit()
        return len(waiting)


def _take_back_what_redis_lost(connection: Redis, at: datetime) -> None:
    """Redis was flushed, or a worker died with the job in its hands: hand over once more."""
    in_redis = [id_ for name in (ASKED, SWEPT) for id_ in queue(name, connection).job_ids]
    db.session.execute(
        update(RefinementSession)
        .where(
            RefinementSession.status == "queued",
            RefinementSession.dispatched_at <= at - _ON_ITS_WAY,
            cast(RefinementSession.id, Text).not_in(in_redis),
        )
        .values(dispatched_at=None)
        .execution_options(synchronize_session=False)
    )


def _room(connection: Redis) -> int:
    """How many more sessions that nobody asked for may be with the workers."""
    workers = live_workers(connection)
    with_workers = select(func.count()).where(
        _IS_SWEPT,
        or_(
            RefinementSession.status == "running",
            (RefinementSession.status == "queued") & RefinementSession.dispatched_at.is_not(None),
        ),
    )
    return max(0, max(1, workers - 1) - (db.session.scalar(with_workers) or 0))


def _waiting(wanted: ColumnElement[bool], limit: int | None = None) -> Sequence[RefinementSession]:
    """The sessions that no worker was given yet, the oldest first, locked."""
    return db.session.scalars(
        select(RefinementSession)
        .where(
            wanted,
            RefinementSession.status == "queued",
            RefinementSession.dispatched_at.is_(None),
        )
        .order_by(RefinementSession.created_at)
        .limit(limit)
        .with_for_update(skip_locked=True, key_share=True)
        .execution_options(populate_existing=True)
    ).all()
