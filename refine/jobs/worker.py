"""The worker process: it loads the application before it forks; each job opens connections."""

import gc
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import structlog
from redis.exceptions import RedisError
from rq import Worker, worker_registration
from rq.exceptions import StopRequested
from rq.job import Job
from rq.queue import Queue
from rq.serializers import JSONSerializer
from rq.worker import BaseWorker
from sqlalchemy.exc import SQLAlchemyError

from refine.embedded.processes import dies_with_parent
from refine.errors import RefineError, Unreachable
from refine.extensions import db
from refine.jobs import stopping
from refine.jobs.queue import (
    QUEUES,
    RUN_JOBS,
    JsonJob,
    queue,
    redis_connection,
)
from refine.models.runs import Run

# How often idle workers do RQ's maintenance; its default is seven minutes.
WORKER_TTL_SECONDS = 60
RESULT_TTL_SECONDS = 0

# A worker stops within ten seconds; a job that has not ended by then is killed.
STOP_SECONDS = 8.0
_REPEAT_SECONDS = 0.2
_PAUSE_SECONDS = 1.0

_log = structlog.get_logger(__name__)

_RUN_TYPE_BY_JOB = {job.function: kind for kind, job in RUN_JOBS.items()}


class GracefulWorker(BaseWorker):
    """A worker that stops when it is asked to, and not because Redis is down."""

    stop_requested = False
    max_connection_wait_time = 5.0

    def handle_warm_shutdown_request(self) -> None:
        self.stop_requested = True
        super().handle_warm_shutdown_request()  # type: ignore[no-untyped-call]

    def request_force_stop(self, _signum: int, _frame: FrameType | None) -> None:
        """Ignore a second request: the first one stops the worker in time."""

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        super().heartbeat(timeout, pipeline)
        # a flushed Redis has forgotten this worker
        worker_registration.register(self, pipeline)


class RefineWorker(GracefulWorker, Worker):
    """RQ's worker, whose job ends in order when the worker is asked to stop."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # prepared before the fork: it remembers which process is the parent
        self._die_with_worker = dies_with_parent(signal.SIGKILL) or (lambda: None)

    def handle_warm_shutdown_request(self) -> None:
        super().handle_warm_shutdown_request()
        self._stop_job_in_background()

    def fork_work_horse(self, job: Job, queue: Queue) -> None:
        super().fork_work_horse(job, queue)
        if self.stop_requested:  # the stop came before the job
            self._stop_job_in_background()

    def monitor_work_horse(self, job: Job, queue: Queue) -> None:
        """Wait for the job, even while Redis is down: a run needs nothing from it."""
        while True:
            try:
                super().monitor_work_horse(job, queue)
                return
            except RedisError as fault:
                _log.warning("the worker waits for Redis", fault=type(fault).__name__)
                if self.stop_requested and not self.horse_pid:
                    raise
                time.sleep(_PAUSE_SECONDS)

    def setup_work_horse_signals(self) -> None:
        stopping.install(signal.SIGTERM)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker

    def main_work_horse(self, job: Job, queue: Queue) -> None:
        # a killed worker takes its job along, which would go on with nobody to stop it
        self._die_with_worker()
        super().main_work_horse(job, queue)

    def handle_work_horse_killed(self, job: Job, retpid: int, ret_val: int, rusage: Any) -> None:
        """End the run whose process was killed: by us, or for lack of memory."""
        kind = _RUN_TYPE_BY_JOB.get(str(job.func_name))
        if kind is not None:
            _fail_run_of(job, kind)

    def _stop_job_in_background(self) -> None:
        # the job runs in a process group of its own, which a signal to ours misses
        if self.horse_pid:
            stop = partial(_stop, self.horse_pid, self)
            threading.Thread(target=stop, name="refine-stop", daemon=True).start()


def work(*, burst: bool = False) -> None:
    """Work on all queues until asked to stop; with ``burst``, until they are empty.

    Call it within an application context, which the jobs inherit.
    """
    _prepare_to_fork()
    keep_working(RefineWorker, QUEUES, burst=burst)


def keep_working(kind: type[GracefulWorker], queues: Iterable[str], *, burst: bool = False) -> None:
    """Work on these queues until asked to stop; with ``burst``, until they are empty.

    RQ's worker survives losing Redis while it listens, but not during a heartbeat, nor a slow
    Redis. A new worker then takes its place, as often as needed. Unreachable if Redis is down at
    the start.
    """
    worker: GracefulWorker | None = None
    while worker is None or not (burst or worker.stop_requested):
        try:
            with redis_connection() as connection:
                if worker is not None:
                    _log.warning("restarting the worker")
                    time.sleep(_PAUSE_SECONDS)
                worker = kind(
                    [queue(name, connection) for name in queues],
                    connection=connection,
                    job_class=JsonJob,
                    serializer=JSONSerializer,
                    worker_ttl=WORKER_TTL_SECONDS,
                    default_result_ttl=RESULT_TTL_SECONDS,
                )
                worker.work(burst=burst, logging_level="WARNING")
        except StopRequested:  # between two workers
            return
        except Unreachable:
            if worker is None or burst:
                raise


def _stop(pid: int, worker: RefineWorker) -> None:
    """Ask the job's process to stop, repeatedly; kill it if it does not."""
    deadline = time.monotonic() + STOP_SECONDS
    while worker.horse_pid == pid and time.monotonic() < deadline:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        time.sleep(_REPEAT_SECONDS)
    if worker.horse_pid == pid:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _fail_run_of(job: Job, kind: type[Run]) -> None:
    try:
        run = db.session.get(kind, uuid.UUID(job.args[0]))
        if run is not None:
            run.end_if_killed()
        db.session.commit()
    except (SQLAlchemyError, RefineError) as fault:  # the tick ends it a little later
        _log.warning("could not end the run of a killed job", fault=type(fault).__name__)
    finally:
        db.session.remove()


def _prepare_to_fork() -> None:
    """A child must not use its parent's connections: it could read another child's results."""
    engine = db.engine
    os.register_at_fork(after_in_child=lambda: _dispose(engine))
    gc.collect()
    gc.freeze()


def _dispose(engine: Any) -> None:
    engine.dispose(close=False)
