"""Running jobs side by side in a worker's work-horse, each in a thread.

A run mostly waits for its model. The work-horse begins with the job that it was forked for, takes
more from the queues as long as places are free, and ends when nothing is left. For RQ, every job
remains a separate one.
"""

import mmap
import queue as queues
import struct
import threading
import time
import uuid
from copy import copy
from typing import NamedTuple, cast

import structlog
from flask import Flask, current_app
from redis.exceptions import RedisError
from rq.exceptions import DeserializationError
from rq.job import Job
from rq.queue import Queue
from rq.serializers import JSONSerializer
from rq.timeouts import BaseDeathPenalty
from rq.worker import BaseWorker

from refine.jobs import stopping
from refine.jobs.own_lease import claiming_with
from refine.jobs.queue import RUN_QUEUES, JsonJob

# How soon a work-horse with a free place notices a new job.
_LOOK_SECONDS = 0.2
# A job that runs this long beyond its own time limit hangs; it is ended with its work-horse.
_HANGS_AFTER_SECONDS = 60
_HEARTBEAT_SECONDS = 1.0

_UUID_BYTES = 16
_PLACE_BYTES = 2 * _UUID_BYTES
_CLOCK = struct.Struct("d")

_log = structlog.get_logger(__name__)


class HeldRun(NamedTuple):
    """A run that a work-horse has in hand, and the lease with which it claims or has claimed it."""

    run_id: uuid.UUID
    lease_token: uuid.UUID


class RunRegistry:
    """Which runs a work-horse has in hand, and when it last sent a heartbeat.

    In memory that it shares with its worker, which ends the runs if the work-horse is killed. No
    lock is needed: only the work-horse writes, and the worker reads when it is gone.
    """

    def __init__(self, places: int) -> None:
        self._memory = mmap.mmap(-1, _CLOCK.size + places * _PLACE_BYTES)
        self.note_alive()

    def put(self, place: int, run: HeldRun | None) -> None:
        """Note which run this place works on, or None."""
        start = _CLOCK.size + place * _PLACE_BYTES
        noted = b"".join(id_.bytes for id_ in run) if run is not None else bytes(_PLACE_BYTES)
        self._memory[start : start + _PLACE_BYTES] = noted

    def runs(self) -> list[HeldRun]:
        """Return the runs in hand."""
        starts = range(_CLOCK.size, len(self._memory), _PLACE_BYTES)
        noted = [self._memory[start : start + _PLACE_BYTES] for start in starts]
        return [
            HeldRun(uuid.UUID(bytes=each[:_UUID_BYTES]), uuid.UUID(bytes=each[_UUID_BYTES:]))
            for each in noted
            if any(each)
        ]

    def note_alive(self) -> None:
        """Send a heartbeat."""
        _CLOCK.pack_into(self._memory, 0, time.monotonic())

    def silent_seconds(self) -> float:
        """Return how long ago the last heartbeat was."""
        (at,) = _CLOCK.unpack_from(self._memory, 0)
        return time.monotonic() - float(at)


class _NoSignal(BaseDeathPenalty):
    """RQ's time limit is a signal of the main thread; runs look at their clock themselves."""

    def setup_death_penalty(self) -> None:
        """Do nothing."""

    def cancel_death_penalty(self) -> None:
        """Do nothing."""


class _Given(NamedTuple):
    """A job that a thread works on, and until when it may (by ``time.monotonic``)."""

    job: Job
    queue: Queue
    until: float
    lease_token: uuid.UUID


class SideBySide:
    """The jobs of one work-horse; ``worker`` is its copy of the worker that forked it."""

    def __init__(self, worker: BaseWorker, registry: RunRegistry, places: int) -> None:
        self._worker = worker
        self._registry = registry
        self._app = cast(Flask, current_app._get_current_object())  # type: ignore[attr-defined]
        self._queues = [each for each in worker.queues if each.name in RUN_QUEUES]
        self._free = list(reversed(range(places)))
        self._given: dict[int, _Given] = {}
        self._ended: queues.SimpleQueue[int] = queues.SimpleQueue()

    def work(self, job: Job, queue: Queue) -> None:
        """Work on this job and on others that wait, until only hanging jobs are left."""
        threading.Thread(target=self._live, name="refine-life", daemon=True).start()
        self._begin(job, queue, prepare=False)
        while self._given and not self._is_stuck():
            self._take_more()
            self._await_end()

    def _live(self) -> None:
        """Send heartbeats, as long as any thread of this process can do something."""
        while True:
            self._registry.note_alive()
            time.sleep(_HEARTBEAT_SECONDS)

    def _take_more(self) -> None:
        while self._free and not stopping.stop_requested() and not self._hanging():
            taken = self._dequeue()
            if taken is None:
                return
            self._begin(*taken, prepare=True)

    def _dequeue(self) -> tuple[Job, Queue] | None:
        """Take the next job, or None; also None while Redis is away."""
        try:
            return self._worker.queue_class.dequeue_any(
                self._queues,
                None,
                connection=self._worker.connection,
                job_class=JsonJob,
                serializer=JSONSerializer,
            )
        except RedisError:
            return None

    def _begin(self, job: Job, queue: Queue, *, prepare: bool) -> None:
        place = self._free.pop()
        limit = float(job.timeout or self._worker.queue_class.DEFAULT_TIMEOUT)
        until = time.monotonic() + limit + _HANGS_AFTER_SECONDS
        given = _Given(job, queue, until, lease_token=uuid.uuid4())
        self._given[place] = given
        run_id = run_id_of(job)
        in_hand = HeldRun(run_id, given.lease_token) if run_id is not None else None
        self._registry.put(place, in_hand)
        worker = self._own_worker(keeps_execution=not prepare)
        thread = threading.Thread(
            target=self._perform, args=(place, given, worker), name="refine-run", daemon=True
        )
        thread.start()

    def _own_worker(self, *, keeps_execution: bool) -> BaseWorker:
        """Return a worker for one job, because RQ stores the current execution on the worker."""
        worker = copy(self._worker)
        worker.death_penalty_class = _NoSignal
        if not keeps_execution:
            worker.execution = None
        return worker

    def _perform(self, place: int, given: _Given, worker: BaseWorker) -> None:
        try:
            with self._app.app_context(), claiming_with(given.lease_token):
                if worker.execution is None:
                    worker.prepare_execution(given.job)
                BaseWorker.perform_job(worker, given.job, given.queue)
        except Exception as fault:  # the run itself has ended, or waits; RQ could not note it
            _log.warning("could not note a job in Redis", fault=type(fault).__name__)
        finally:
            self._ended.put(place)

    def _await_end(self) -> None:
        """Wait for a job to end, but not for long."""
        try:
            place = self._ended.get(timeout=_LOOK_SECONDS)
        except queues.Empty:
            return
        self._registry.put(place, None)
        del self._given[place]
        self._free.append(place)

    def _hanging(self) -> list[_Given]:
        at = time.monotonic()
        return [each for each in self._given.values() if at > each.until]

    def _is_stuck(self) -> bool:
        """Whether only jobs are left that hang; the worker ends them."""
        hanging = self._hanging()
        if len(hanging) < len(self._given):
            return False
        _log.error("jobs hang", jobs=[each.job.id for each in hanging])
        return True


def run_id_of(job: Job) -> uuid.UUID | None:
    """Return the id of the run that the job names; None if it names none."""
    try:
        return uuid.UUID(job.args[0])
    except (DeserializationError, ValueError, TypeError, AttributeError, IndexError):
        return None
