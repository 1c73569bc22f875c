"""The worker process: the application is loaded before the fork, connections are not."""

import gc
import os
import signal
from contextlib import suppress
from typing import Any

from rq import Worker
from rq.job import Job
from rq.queue import Queue
from rq.serializers import JSONSerializer

from refine.embedded.processes import dies_with_parent
from refine.extensions import db
from refine.jobs import stopping
from refine.jobs.queue import JsonJob, queue, redis_connection

# RQ asks its idle workers back to maintenance this often; its default is seven minutes.
WORKER_TTL_SECONDS = 60
RESULT_TTL_SECONDS = 0


class RefineWorker(Worker):
    """RQ's worker, whose job ends in order where the worker is asked to end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # prepared before the fork: it remembers which process is the parent
        self._die_with_worker = dies_with_parent(signal.SIGKILL) or (lambda: None)

    def handle_warm_shutdown_request(self) -> None:
        super().handle_warm_shutdown_request()  # type: ignore[no-untyped-call]
        # the job runs in a process group of its own, which a signal to ours misses
        if self.horse_pid:
            with suppress(ProcessLookupError):
                os.kill(self.horse_pid, signal.SIGTERM)

    def setup_work_horse_signals(self) -> None:
        stopping.install(signal.SIGTERM)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the worker's affair

    def main_work_horse(self, job: Job, queue: Queue) -> None:
        # a worker that is killed takes its job along: another one would not know that it lives
        self._die_with_worker()
        super().main_work_horse(job, queue)


def work(*, burst: bool = False) -> None:
    """Work the queue until asked to end; with ``burst``, until it is empty.

    Within an application context, which the jobs inherit.
    """
    with redis_connection() as connection:
        _prepare_to_fork()
        worker = RefineWorker(
            [queue(connection)],
            connection=connection,
            job_class=JsonJob,
            serializer=JSONSerializer,
            worker_ttl=WORKER_TTL_SECONDS,
            default_result_ttl=RESULT_TTL_SECONDS,
        )
        worker.work(burst=burst, logging_level="WARNING")


def _prepare_to_fork() -> None:
    """A child must not use its parent's connections: it would read another child's answers."""
    engine = db.engine
    os.register_at_fork(after_in_child=lambda: _dispose(engine))
    gc.collect()
    gc.freeze()


def _dispose(engine: Any) -> None:
    engine.dispose(close=False)
