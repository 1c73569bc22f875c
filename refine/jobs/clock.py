"""The clock process: rq-scheduler holds the tick, and gets it anew whenever it looks."""

import signal
import time
from contextlib import suppress
from datetime import UTC, datetime

import structlog
from redis import Redis
from rq_scheduler import Scheduler

from refine import clock, stopping
from refine.errors import Unreachable
from refine.extensions import db
from refine.jobs.queue import TICKS, JsonJob, redis_connection, require_redis, take
from refine.jobs.tick import INTERVAL, run_tick

TICK = "refine.jobs.tick.run_tick"
TICK_ID = "tick"
# How often rq-scheduler looks whether the tick is due; after a crash, its lock lasts ten seconds
# longer.
POLL_SECONDS = 5
_WAIT_SECONDS = 1

_log = structlog.get_logger(__name__)


def run_clock() -> None:
    """Tick every minute until stopped, within an application context, even without Redis."""
    require_redis()
    poll_at, ticked_at = 0.0, _tick()
    with stopping.handle_stop_signals(signal.SIGINT, signal.SIGTERM):
        while not stopping.stop_requested():
            try:
                if time.monotonic() >= poll_at:
                    poll_at = time.monotonic() + POLL_SECONDS
                    schedule()
                is_due = take([TICKS], _WAIT_SECONDS) is not None
            except Unreachable as fault:
                _log.warning("the clock waits for Redis", fault=str(fault))
                time.sleep(_WAIT_SECONDS)
                is_due = time.monotonic() - ticked_at >= INTERVAL.total_seconds()
            if is_due:
                ticked_at = _tick()


def _tick() -> float:
    with suppress(Unreachable):
        while take([TICKS], None) is not None:
            pass
    ticked_at = time.monotonic()
    run_tick()
    db.session.remove()
    db.engine.dispose()
    return ticked_at


def schedule() -> None:
    """Have rq-scheduler hold the tick, and queue it if it is due; safe to repeat."""
    with redis_connection() as connection:
        scheduler = Scheduler(
            TICKS, connection=connection, job_class=JsonJob, interval=POLL_SECONDS
        )
        if not scheduler.acquire_lock():
            return
        try:
            _schedule(scheduler, connection)
        finally:
            scheduler.remove_lock()


def _schedule(scheduler: Scheduler, connection: Redis) -> None:
    at = clock.now()
    stored = connection.zscore(scheduler.scheduled_jobs_key, TICK_ID)
    # an entry far in the future was scheduled by a wrong clock
    due_at = at if stored is None else datetime.fromtimestamp(stored, UTC)
    due_at = due_at if due_at <= at + 2 * INTERVAL else at
    connection.delete(JsonJob.key_for(TICK_ID))
    job = scheduler.schedule(
        due_at,
        TICK,
        interval=int(INTERVAL.total_seconds()),
        id=TICK_ID,
        queue_name=TICKS,
        description="tick",
    )
    if due_at <= at:
        scheduler.enqueue_job(job)
