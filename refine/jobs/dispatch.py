"""Dispatching waiting runs to the workers: all requested ones, and as many automatic ones as fit.

The database knows what waits; Redis only passes it on. Each worker has a number of places; one of
all of them stays free of automatic runs, so that nobody waits for a sweep of a thousand agents.
Each run that ends makes room for the next. Memory tasks come after the sessions.

Redis may be down, full, or silent. So runs are marked as dispatched first, and pushed once that is
committed: no lock is held, and no transaction open, while Redis is asked. What could not be pushed
is marked again as not dispatched; the next tick does both if a process died in between.
"""

import time
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from redis import Redis
from sqlalchemy import ColumnElement, and_, func, select, text, update
from sqlalchemy.exc import DBAPIError

from refine import clock, settings
from refine.database_errors import trouble_of
from refine.errors import Unreachable
from refine.extensions import db, safe_rollback
from refine.jobs.queue import (
    PATIENCE_SECONDS,
    RUN_JOBS,
    enqueue,
    jobs_of,
    redis_connection,
    waiting_ids,
)
from refine.jobs.workers import live_workers
from refine.models import AccessGrant, MemoryTask, RefinementSession
from refine.models.runs import Run
from refine.models.runs.task import scheduling as task_scheduling

# A worker takes a job from Redis a moment before it claims the run in the database.
_CLAIMED_WITHIN = timedelta(seconds=30)

# Only one at a time gives automatic runs their places, otherwise two would fill the same one. That
# takes some milliseconds; others do not wait long for a process that was stopped in the middle.
_LOCK = text(
    "SELECT set_config('lock_timeout', '1s', true),"
    " pg_advisory_xact_lock(hashtext('refine.dispatch'))"
)

# A request waits at most this long for Redis; its process then leaves Redis alone for a while.
_SHORT_PATIENCE_SECONDS = 2.0
_PAUSE_SECONDS = 10.0
_silent_until: dict[str, float] = {}

# What people are told if runs could not be dispatched.
REDIS_AWAY = "Redis is unreachable; queued sessions will start automatically once it is back."


def dispatch(at: datetime | None = None, *, patience_seconds: float = PATIENCE_SECONDS) -> int:
    """Dispatch what may be dispatched now, and commit; return how many runs.

    Call it with no transaction open. Raises Unreachable if Redis is down: everything stays queued
    and nothing is lost.
    """
    at = at or clock.now()
    with redis_connection(patience_seconds=patience_seconds) as connection:
        in_redis, workers = waiting_ids(connection), live_workers(connection)
        _reset_lost_dispatches(in_redis, at)
        dispatched = _hand_over(_requested(), connection, at)
        try:
            automatic = _automatic(workers, at)
        except DBAPIError as error:
            safe_rollback()
            if trouble_of(error) != "busy":
                raise
            return dispatched  # the next to dispatch does the rest
        return dispatched + _hand_over(automatic, connection, at)


def dispatch_if_possible() -> bool:
    """Dispatch, without waiting for long; return False if it is left to the next tick."""
    db.session.rollback()
    url = settings.current().redis_url
    if time.monotonic() < _silent_until.get(url, 0.0):
        return False
    try:
        dispatch(patience_seconds=_SHORT_PATIENCE_SECONDS)
    except Unreachable:
        safe_rollback()
        _silent_until[url] = time.monotonic() + _PAUSE_SECONDS
        return False
    except DBAPIError:
        safe_rollback()
        return False
    return True


def _hand_over(runs: Sequence[Run], connection: Redis, at: datetime) -> int:
    """Mark these locked runs as dispatched, commit, and push them; return how many they are."""
    jobs, ids = jobs_of(runs), [run.id for run in runs]
    for run in runs:
        run.dispatched_at = at
    db.session.commit()
    try:
        enqueue(jobs, connection)
    except Exception:
        _take_back(ids, at)
        raise
    return len(ids)


def _take_back(ids: Sequence[uuid.UUID], at: datetime) -> None:
    """Mark runs as not dispatched; if the database is unavailable, a later tick does it."""
    try:
        for kind in RUN_JOBS:
            _reset(kind, kind.id.in_(ids), kind.dispatched_at == at)
        db.session.commit()
    except DBAPIError:
        safe_rollback()


def _reset_lost_dispatches(in_redis: Sequence[uuid.UUID], at: datetime) -> None:
    """Mark runs as not dispatched if Redis lost them, or their worker died before the claim."""
    for kind in RUN_JOBS:
        _reset(kind, kind.dispatched_at <= at - _CLAIMED_WITHIN, kind.id.not_in(in_redis))


def _reset(kind: type[Run], *conditions: ColumnElement[bool]) -> None:
    # whoever has locked one claims it, or ends it
    lost = select(kind.id).where(kind.is_waiting, *conditions)
    lost = lost.with_for_update(skip_locked=True, key_share=True)
    again = update(kind).where(kind.id.in_(lost)).values(dispatched_at=None)
    db.session.execute(again.execution_options(synchronize_session=False))


def _requested() -> list[Run]:
    """Return the requested runs, locked, except those that another process is dispatching."""
    return [
        *_waiting(AccessGrant),
        *_waiting(RefinementSession, ~RefinementSession.is_automatic),
    ]


def _automatic(workers: int, at: datetime) -> list[Run]:
    """Return the automatic runs for which this many workers have room, locked."""
    db.session.execute(_LOCK)
    room = _room(workers)
    sessions = _waiting(RefinementSession, and_(RefinementSession.is_automatic), limit=room)
    return [*sessions, *task_scheduling.dispatchable(room - len(sessions), at)]


def _room(workers: int) -> int:
    """How many more automatic runs the workers may be given."""
    busy = sum(
        db.session.scalar(select(func.count()).where(at_workers)) or 0
        for at_workers in (
            RefinementSession.is_automatic & RefinementSession.is_at_workers(),
            MemoryTask.is_at_workers(),
        )
    )
    places = workers * settings.current().concurrency
    return max(0, max(1, places - 1) - busy)


def _waiting(
    kind: type[Run], *conditions: ColumnElement[bool], limit: int | None = None
) -> Sequence[Run]:
    return db.session.scalars(kind.select_dispatchable(limit).where(*conditions)).all()
