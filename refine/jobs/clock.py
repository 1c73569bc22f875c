"""The clock process: rq-scheduler, which knows one job, and the worker of that job's queue.

The schedule itself is in the database. rq-scheduler holds the minute's tick under one fixed id, and
gets it back whenever Redis has lost it.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import structlog
from redis import Redis
from rq import SimpleWorker
from rq.exceptions import DeserializationError, NoSuchJobError
from rq.job import Job
from rq_scheduler import Scheduler

from refine import clock
from refine.extensions import db
from refine.jobs.queue import TICK, TICKS, JsonJob, redis_connection
from refine.jobs.tick import INTERVAL, run_tick
from refine.jobs.worker import GracefulWorker, keep_working

TICK_ID = "tick"
TICK_TIMEOUT_SECONDS = 300
# How often rq-scheduler looks for due jobs; after a crash, its lock lasts ten seconds longer.
POLL_SECONDS = 5

_log = structlog.get_logger(__name__)


class ClockWorker(GracefulWorker, SimpleWorker):
    """RQ's worker for ticks, in this process: a fork would cost more than the tick."""

    def perform_job(self, job, queue):  # type: ignore[no-untyped-def]
        try:
            return super().perform_job(job, queue)
        finally:
            _disconnect()


def run_clock() -> None:
    """Tick every minute, beginning now, until asked to stop (SIGTERM).

    Call it within an application context. Several clocks do no harm.
    """
    run_tick()
    _disconnect()
    with _scheduling():
        keep_working(ClockWorker, [TICKS])


def _disconnect() -> None:
    """Hold no connection until the next tick."""
    db.session.remove()
    db.engine.dispose()


class TickScheduler(Scheduler):  # type: ignore[misc]
    """rq-scheduler, for the tick alone: it ignores whatever else is scheduled in this Redis."""

    def __init__(self, connection: Redis) -> None:
        super().__init__(TICKS, connection=connection, job_class=JsonJob, interval=POLL_SECONDS)

    def get_jobs_to_queue(self, with_times: bool = False) -> list[Job]:
        """Return the tick, if it is due."""
        due_at = self.connection.zscore(self.scheduled_jobs_key, TICK_ID)
        is_due = due_at is not None and due_at <= clock.now().timestamp()
        job = _job(TICK_ID, self.connection) if is_due else None
        return [job] if job is not None else []


def register(scheduler: Scheduler) -> None:
    """Schedule the tick once, and cancel anything else on its queue; safe to repeat."""
    is_there = False
    entries = scheduler.connection.zrange(Scheduler.scheduled_jobs_key, 0, -1, withscores=True)
    for id_, due_at in entries:
        job = _job(id_.decode(errors="replace"), scheduler.connection)
        if job is None or (job.origin == TICKS and not _is_tick(job)):
            scheduler.cancel(id_)
        elif job.id == TICK_ID and _is_tick(job):
            # an entry far in the future was scheduled by a wrong clock
            is_there = due_at <= (clock.now() + 2 * INTERVAL).timestamp()
    if not is_there:
        scheduler.connection.delete(JsonJob.key_for(TICK_ID))
        # no result_ttl: rq-scheduler's entry is the job's own hash, and must not expire
        scheduler.schedule(
            clock.now(),
            TICK,
            interval=int(INTERVAL.total_seconds()),
            id=TICK_ID,
            queue_name=TICKS,
            timeout=TICK_TIMEOUT_SECONDS,
            description="tick",
        )


def _is_tick(job: JsonJob) -> bool:
    """Tell whether a job is the tick as it was registered, and not one altered in Redis."""
    try:
        return (
            (job.id, job.origin, job.func_name) == (TICK_ID, TICKS, TICK)
            and job.meta == {"interval": int(INTERVAL.total_seconds())}
            and not (job.has_unknown_fields or job.args or job.kwargs or job.instance)
        )
    except (DeserializationError, ValueError, TypeError):
        return False


def _job(id_: str, connection: Redis) -> JsonJob | None:
    """The job of an entry; None if it is missing, which would make rq-scheduler fail."""
    try:
        return cast(JsonJob, JsonJob.fetch(id_, connection=connection))
    except (NoSuchJobError, ValueError):
        return None


@contextmanager
def _scheduling() -> Iterator[None]:
    """Run rq-scheduler's loop in a thread, because signals are for the worker.

    It has its own connection, because the worker's has other timeouts.
    """
    stop = threading.Event()
    with redis_connection(is_kept=False) as connection:
        scheduler = TickScheduler(connection)
        thread = threading.Thread(target=_schedule, args=(scheduler, stop), name="refine-scheduler")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def _schedule(scheduler: Scheduler, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            _schedule_once(scheduler)
        except Exception as fault:
            # whatever it was, there would be no more ticks without this thread
            _log.warning("scheduler loop failed", fault=type(fault).__name__)
        stop.wait(POLL_SECONDS)


def _schedule_once(scheduler: Scheduler) -> None:
    if not scheduler.acquire_lock():
        return
    try:
        register(scheduler)
        scheduler.enqueue_jobs()
    finally:
        scheduler.remove_lock()
