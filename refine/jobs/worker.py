"""The worker process: it loads the application before it forks a process that works on jobs."""

import ctypes
import os
import re
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import structlog
from redis import Redis
from redis.exceptions import RedisError
from rq import Worker, worker_registration
from rq.exceptions import InvalidJobOperation, NoSuchJobError, StopRequested
from rq.job import Job, JobStatus
from rq.queue import Queue
from rq.serializers import JSONSerializer
from rq.worker import BaseWorker
from sqlalchemy.exc import SQLAlchemyError

from refine import garbage, settings
from refine.embedded.processes import dies_with_parent
from refine.errors import RefineError, Unreachable
from refine.extensions import db
from refine.jobs import stopping
from refine.jobs.queue import (
    QUEUES,
    RUN_JOBS,
    RUN_QUEUES,
    JsonJob,
    queue,
    redis_connection,
)
from refine.jobs.side_by_side import HeldRun, RunRegistry, SideBySide
from refine.jobs.workers import REMEMBERED_FOR

# M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of mallopt(3)
_MALLOC = {-8: 1, -3: 128 * 1024, -1: 128 * 1024}

# How often idle workers do RQ's maintenance; its default is seven minutes.
WORKER_TTL_SECONDS = 60

# A worker stops within ten seconds; a job that has not ended by then is killed.
STOP_SECONDS = 8.0
_REPEAT_SECONDS = 0.2
_PAUSE_SECONDS = 1.0

# How often a worker checks the heartbeat of the process of its jobs.
MONITORING_SECONDS = 30
# A process that sends no heartbeat for so long hangs as a whole, and is killed.
HORSE_SILENT_SECONDS = 120

# Redis takes no others in the name of a client.
_NOT_IN_NAMES = re.compile(r"[^\w.-]", re.ASCII)

_log = structlog.get_logger(__name__)


class GracefulWorker(BaseWorker):
    """A worker that stops when it is asked to, and not because Redis is down."""

    stop_requested = False
    max_connection_wait_time = 5.0

    def handle_warm_shutdown_request(self) -> None:
        self.stop_requested = True
        super().handle_warm_shutdown_request()  # type: ignore[no-untyped-call]

    def request_force_stop(self, _signum: int, _frame: FrameType | None) -> None:
        """Ignore a second request: the first one stops the worker in time."""

    def register_birth(self) -> None:
        super().register_birth()  # type: ignore[no-untyped-call]
        self.heartbeat()

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        # always the same time, so that the rest of it shows how old the heartbeat is
        super().heartbeat(int(REMEMBERED_FOR.total_seconds()), pipeline)
        # a flushed Redis has forgotten this worker
        worker_registration.register(self, pipeline)


class RefineWorker(GracefulWorker, Worker):
    """RQ's worker, whose process for jobs works on many runs side by side.

    They end in order when the worker is asked to stop. RQ forks for one job, and watches that one;
    the registry tells which others the process has in hand.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # prepared before the fork: it remembers which process is the parent
        self._die_with_worker = dies_with_parent(signal.SIGKILL) or (lambda: None)
        self._places = settings.current().concurrency
        self._registry = RunRegistry(self._places)

    def handle_warm_shutdown_request(self) -> None:
        super().handle_warm_shutdown_request()
        self._stop_job_in_background()

    # -- in the worker ---------------------------------------------------------------------------

    def get_heartbeat_ttl(self, job: Job) -> int:
        """Let RQ keep a job for as long as it may take: RQ is not told later that it continues."""
        return int(job.timeout or self.queue_class.DEFAULT_TIMEOUT) + WORKER_TTL_SECONDS

    def fork_work_horse(self, job: Job, queue: Queue) -> None:
        self._registry = RunRegistry(self._places)
        super().fork_work_horse(job, queue)
        if self.stop_requested:  # the stop came before the job
            self._stop_job_in_background()

    def monitor_work_horse(self, job: Job, queue: Queue) -> None:
        """Wait for the work-horse, and end what it leaves behind if it was killed."""
        if queue.name in RUN_QUEUES:
            job.timeout = -1  # only here: other runs continue when this one's time is up
        try:
            self._wait_for_work_horse(job, queue)
        finally:
            if not self.horse_pid:
                self._end_orphaned_runs()

    def _wait_for_work_horse(self, job: Job, queue: Queue) -> None:
        """Wait, even while Redis is down: a run needs nothing from it."""
        while True:
            try:
                super().monitor_work_horse(job, queue)
                return
            except RedisError as fault:
                _log.warning("the worker waits for Redis", fault=type(fault).__name__)
                if self.stop_requested and not self.horse_pid:
                    raise
                time.sleep(_PAUSE_SECONDS)

    def maintain_heartbeats(self, job: Job) -> None:
        self.heartbeat(self.job_monitoring_interval + WORKER_TTL_SECONDS)
        if job.timeout == -1 and self._registry.silent_seconds() > HORSE_SILENT_SECONDS:
            _log.error("the process of the jobs hangs", runs=len(self._registry.runs()))
            self.kill_horse()

    def _end_orphaned_runs(self) -> None:
        """End the runs whose process was killed: by us, or for lack of memory."""
        left = self._registry.runs()
        for each in left:
            _end_killed_run(each)
        with suppress(RedisError):
            for each in left:
                self._fail_job(str(each.run_id))

    def _fail_job(self, id_: str) -> None:
        try:
            job = JsonJob.fetch(id_, connection=self.connection)
            if job.get_status() in (JobStatus.FINISHED, JobStatus.FAILED):
                return
        except (NoSuchJobError, InvalidJobOperation):
            return
        for execution in job.get_executions():
            if execution.worker_name == self.name:
                self.execution = execution
                its_queue = queue(job.origin, self.connection)
                self.handle_job_failure(job, its_queue, exc_string="its process was killed")

    # -- in the process for jobs -----------------------------------------------------------------

    def setup_work_horse_signals(self) -> None:
        stopping.install(signal.SIGTERM)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker

    def main_work_horse(self, job: Job, queue: Queue) -> None:
        # a killed worker takes its job along; otherwise nobody could stop the job
        self._die_with_worker()
        super().main_work_horse(job, queue)

    def perform_job(self, job: Job, queue: Queue) -> bool:
        if queue.name not in RUN_QUEUES:
            return super().perform_job(job, queue)
        SideBySide(self, self._registry, self._places).work(job, queue)
        return True

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
            with redis_connection(is_kept=False) as connection:
                if worker is not None:
                    _log.warning("restarting the worker")
                    if worker.stop_requested:  # logging swallows what a signal raises in it
                        return
                    time.sleep(_PAUSE_SECONDS)
                worker = _new_worker(kind, queues, connection)
                worker.work(burst=burst, logging_level="WARNING")
        except StopRequested:  # between two workers
            return
        except Unreachable:
            if worker is None or burst:
                raise


def _new_worker(
    kind: type[GracefulWorker], queues: Iterable[str], connection: Redis
) -> GracefulWorker:
    return kind(
        [queue(name, connection) for name in queues],
        name=_name(),
        connection=connection,
        job_class=JsonJob,
        serializer=JSONSerializer,
        worker_ttl=WORKER_TTL_SECONDS,
        job_monitoring_interval=MONITORING_SECONDS,
        default_result_ttl=0,
    )


def _name() -> str:
    """Return a new name for a worker, which says where to look for its process."""
    host = _NOT_IN_NAMES.sub("", socket.gethostname())
    return f"{host}-{os.getpid()}-{secrets.token_hex(2)}"


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


def _end_killed_run(killed: HeldRun) -> None:
    """End the run, unless another worker has claimed it since, with its own lease."""
    try:
        for kind in RUN_JOBS:
            run = db.session.get(kind, killed.run_id)
            if run is not None:
                run.end_if_killed(killed.lease_token)
        db.session.commit()
    except (SQLAlchemyError, RefineError) as fault:  # the tick ends it a little later
        _log.warning("could not end the run of a killed job", fault=type(fault).__name__)
    finally:
        db.session.remove()


def _prepare_to_fork() -> None:
    """A child must not use its parent's connections: it could read another child's results."""
    engine = db.engine
    engine.dispose()  # an idle worker needs none
    os.register_at_fork(after_in_child=partial(engine.dispose, close=False))
    _return_large_blocks()
    garbage.settle()


def _return_large_blocks() -> None:
    """Let glibc return large blocks once they are free; it would keep some for each thread."""
    c_library = ctypes.CDLL(None)
    if hasattr(c_library, "mallopt"):
        for parameter, value in _MALLOC.items():
            c_library.mallopt(parameter, value)
