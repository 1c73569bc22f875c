"""Dispatching waiting runs to the workers: all requested ones, and as many automatic ones as fit.

The database knows what waits; Redis only passes it on. Each worker has a number of places; one of
all of them stays free of automatic runs, so that nobody waits for a sweep of a thousand agents.
Each run that ends makes room for the next. Memory tasks come after the sessions.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from redis import Redis
from sqlalchemy import ColumnElement, and_, func, select, text, update
from sqlalchemy.exc import DBAPIError

from refine import clock, settings
from refine.errors import Unreachable
from refine.extensions import db
from refine.jobs.queue import RUN_JOBS, enqueue, redis_connection, waiting_ids
from refine.jobs.workers import live_workers
from refine.models import AccessGrant, MemoryTask, RefinementSession
from refine.models.runs import Run
from refine.models.runs.task import scheduling as task_scheduling

# A worker takes a job from Redis a moment before it claims the run in the database.
_CLAIMED_WITHIN = timedelta(seconds=30)

# One dispatcher at a time, so that two do not fill the same places.
_LOCK = text("SELECT pg_advisory_xact_lock(hashtext('refine.dispatch'))")


def dispatch(at: datetime | None = None) -> int:
    """Dispatch what may be dispatched now, and commit; return how many runs.

    Raises Unreachable if Redis is down: everything stays queued and nothing is lost.
    """
    at = at or clock.now()
    with redis_connection() as connection:
        db.session.execute(_LOCK)
        _reset_lost_dispatches(connection, at)
        room = _room(connection)
        requested: list[Run] = [
            *_waiting(AccessGrant),
            *_waiting(RefinementSession, ~RefinementSession.is_automatic),
        ]
        automatic = _waiting(RefinementSession, and_(RefinementSession.is_automatic), limit=room)
        tasks = task_scheduling.dispatchable(room - len(automatic), at)
        runs = [*requested, *automatic, *tasks]
        enqueue(runs, connection)
        for run in runs:
            run.dispatched_at = at
        db.session.commit()
        return len(runs)


def dispatch_if_possible() -> None:
    """Dispatch; if Redis or the database cannot, the next tick does."""
    db.session.rollback()
    try:
        dispatch()
    except (Unreachable, DBAPIError):
        db.session.rollback()


def _reset_lost_dispatches(connection: Redis, at: datetime) -> None:
    """Mark runs as not dispatched if Redis lost them, or their worker died before the claim."""
    in_redis = waiting_ids(connection)
    for kind in RUN_JOBS:
        db.session.execute(
            update(kind)
            .where(
                kind.is_waiting,
                kind.dispatched_at <= at - _CLAIMED_WITHIN,
                kind.id.not_in(in_redis),
            )
            .values(dispatched_at=None)
            .execution_options(synchronize_session=False)
        )


def _room(connection: Redis) -> int:
    """How many more automatic runs the workers may be given."""
    busy = sum(
        db.session.scalar(select(func.count()).where(at_workers)) or 0
        for at_workers in (
            RefinementSession.is_automatic & RefinementSession.is_at_workers(),
            MemoryTask.is_at_workers(),
        )
    )
    places = live_workers(connection) * settings.current().concurrency
    return max(0, max(1, places - 1) - busy)


def _waiting(
    kind: type[Run], *conditions: ColumnElement[bool], limit: int | None = None
) -> Sequence[Run]:
    return db.session.scalars(kind.select_dispatchable(limit).where(*conditions)).all()
