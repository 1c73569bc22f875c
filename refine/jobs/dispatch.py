"""Handing what is queued to the workers: all that somebody asked for, of the rest a few at a time.

The database says what waits, Redis only passes it on. So that a sweep of a thousand agents does
not keep a person waiting, one of several workers is left free of what nobody asked for; each
that ends makes room for the next. Memory tasks come after the sessions.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from redis import Redis
from sqlalchemy import ColumnElement, Text, cast, func, or_, select, text, update
from sqlalchemy.exc import DBAPIError

from refine import clock
from refine.errors import Unreachable
from refine.extensions import db
from refine.jobs.queue import (
    ASKED,
    REMEMBERED,
    SWEPT,
    enqueue,
    enqueue_task,
    live_workers,
    queue,
    redis_connection,
)
from refine.models import MemoryTask, RefinementSession
from refine.models.session import AUTOMATIC_TRIGGERS

# A worker takes a job from Redis a moment before it claims the session in the database.
_ON_ITS_WAY = timedelta(seconds=30)

# One dispatcher at a time, so that two do not fill the same room.
_DISPATCHING = text("SELECT pg_advisory_xact_lock(hashtext('refine.dispatch'))")

_IS_SWEPT = RefinementSession.trigger.in_(AUTOMATIC_TRIGGERS)


def dispatch(at: datetime | None = None) -> int:
    """Hand over what may be handed over now, and commit; return how many sessions and tasks.

    Raises Unreachable where Redis is away: everything stays queued and loses nothing.
    """
    at = at or clock.now()
    with redis_connection() as connection:
        db.session.execute(_DISPATCHING)
        _take_back_what_redis_lost(connection, at)
        room = _room(connection)
        swept = _waiting(_IS_SWEPT, room)
        sessions = [*_waiting(~_IS_SWEPT), *swept]
        for session in sessions:
            enqueue(session, connection)
            session.dispatched_at = at
        tasks = MemoryTask.waiting(room - len(swept), at)
        for task in tasks:
            enqueue_task(task, connection)
            task.dispatched_at = at
        db.session.commit()
        return len(sessions) + len(tasks)


def make_room() -> None:
    """Hand over what may be, where that is possible; the tick does it, too."""
    db.session.rollback()
    try:
        dispatch()
    except (Unreachable, DBAPIError):
        db.session.rollback()


def _take_back_what_redis_lost(connection: Redis, at: datetime) -> None:
    """Redis was flushed, or a worker died with the job in its hands: hand over once more."""
    names = (ASKED, SWEPT, REMEMBERED)
    in_redis = [id_ for name in names for id_ in queue(name, connection).job_ids]
    for kind in (RefinementSession, MemoryTask):
        db.session.execute(
            update(kind)
            .where(
                kind.status == "queued",
                kind.dispatched_at <= at - _ON_ITS_WAY,
                cast(kind.id, Text).not_in(in_redis),
            )
            .values(dispatched_at=None)
            .execution_options(synchronize_session=False)
        )


def _room(connection: Redis) -> int:
    """How many more that nobody asked for may be with the workers."""
    workers = live_workers(connection)
    with_workers = select(func.count()).where(
        _IS_SWEPT,
        or_(
            RefinementSession.status == "running",
            (RefinementSession.status == "queued") & RefinementSession.dispatched_at.is_not(None),
        ),
    )
    busy = (db.session.scalar(with_workers) or 0) + MemoryTask.with_workers()
    return max(0, max(1, workers - 1) - busy)


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
