"""The worker process: takes waiting runs from PostgreSQL, and works on several in threads."""

import ctypes
import queue as queues
import signal
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import structlog
from flask import Flask, current_app
from sqlalchemy.exc import SQLAlchemyError

from refine import clock, settings, stopping
from refine.access import asking
from refine.errors import RefineError, Unreachable
from refine.extensions import db, safe_rollback
from refine.jobs.queue import (
    QUEUES,
    RUN_KINDS,
    SHORT_PATIENCE_SECONDS,
    TICKS,
    Waiting,
    announce_waiting,
    require_redis,
    take,
    waiting_runs,
)
from refine.jobs.tick import INTERVAL, run_tick, stand_in
from refine.models import AccessGrant, MemoryTask, PeriodicWork, RefinementSession, schema_version
from refine.models.runs.run import Run
from refine.refinement.loop import refine
from refine.remembering.task_worker import run_task

# M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of mallopt(3)
_MALLOC = {-8: 1, -3: 128 * 1024, -1: 128 * 1024}

# A worker stops within ten seconds; a run that has not ended by then is given up.
STOP_SECONDS = 8.0
# How often it looks for runs that Redis did not announce.
LOOK_SECONDS = 5.0
_WAIT_SECONDS = 1
# For each run that it works on, it leaves the next one to the others for so long, and at most.
GIVE_WAY_SECONDS, _LONGEST_WAY_SECONDS = 0.05, 0.5

_log = structlog.get_logger(__name__)


_WORK: dict[type[Run], Callable[..., object]] = {
    RefinementSession: refine,
    MemoryTask: run_task,
    AccessGrant: asking.run_access_request,
}


def work_on_run(run: Waiting, lease_token: uuid.UUID | None = None) -> None:
    """Claim the waiting run with this lease and work on it to its end, unless another has it."""
    _WORK[run.kind](
        run.id,
        settings.current(),
        is_stopping=stopping.stop_requested,
        lease_token=lease_token,
    )


def work_on(run_id: str) -> None:
    for kind in RUN_KINDS:
        run = db.session.get(kind, uuid.UUID(run_id))
        if run is not None:
            work_on_run(Waiting(kind, run.id))
            return


def work(*, burst: bool = False) -> None:
    """Work until stopped, with ``burst`` until nothing waits; raises Unreachable at the start."""
    _return_large_blocks()
    require_redis()
    runner = ConcurrentRunner(settings.current().concurrency)
    with stopping.handle_stop_signals(signal.SIGINT, signal.SIGTERM):
        try:
            _serve(runner, burst=burst)
        finally:
            runner.stop()


def _serve(runner: "ConcurrentRunner", *, burst: bool) -> None:
    look_at, stand_in_at = 0.0, time.monotonic()
    while not stopping.stop_requested():
        if time.monotonic() >= stand_in_at:
            _look_at_clock()
            stand_in_at = time.monotonic() + INTERVAL.total_seconds()
        if time.monotonic() >= look_at:
            look_at = time.monotonic() + LOOK_SECONDS
            if runner.begin_next():
                look_at = 0.0
                runner.give_way()
        elif runner.await_end(0 if runner.free else _WAIT_SECONDS):
            look_at = 0.0
        elif runner.free and (name := _take(wait=not burst or not runner.is_idle)) is not None:
            look_at = 0.0
            if name == TICKS:
                run_tick()
        elif burst and runner.is_idle:
            return


def _look_at_clock() -> None:
    try:
        now, may_work = clock.now(), not schema_version.must_wait()
        is_silent = may_work and PeriodicWork.is_silent("tick", now)
        db.session.commit()
    except SQLAlchemyError:  # every look says so
        safe_rollback()
    else:
        if is_silent:
            stand_in(now)


def _take(*, wait: bool) -> str | None:
    try:
        return take(QUEUES, _WAIT_SECONDS if wait else None)
    except Unreachable as fault:
        _log.warning("the worker waits for Redis", fault=str(fault))
        time.sleep(_WAIT_SECONDS)
        return None


class ConcurrentRunner:
    def __init__(
        self, threads: int, work_on: Callable[[Waiting, uuid.UUID], None] = work_on_run
    ) -> None:
        self._app = cast(Flask, current_app._get_current_object())  # type: ignore[attr-defined]
        self._threads = threads
        self._work_on = work_on
        # the runs of its threads by id, with their lease tokens
        self._held: dict[uuid.UUID, tuple[Waiting, uuid.UUID]] = {}
        # when it began them: one that cannot be claimed, and waits on, keeps no other waiting
        self._begun_at: dict[uuid.UUID, float] = {}
        self._ended: queues.SimpleQueue[uuid.UUID] = queues.SimpleQueue()

    @property
    def free(self) -> int:
        return self._threads - len(self._held)

    @property
    def is_idle(self) -> bool:
        return not self._held

    def begin_next(self) -> bool:
        """Begin one run that waits, if any: others are there for the next. One thread stays free
        for runs that somebody asked for.
        """
        try:
            run = None
            if not schema_version.must_wait():
                run = self._next()
                PeriodicWork.note("worker", clock.now())
            db.session.commit()
        except SQLAlchemyError as fault:
            safe_rollback()
            _log.warning("the worker waits for the database", fault=type(fault).__name__)
            return False
        if run is None or not self.free:
            return False
        lease_token = uuid.uuid4()
        self._held[run.id] = run, lease_token
        self._begun_at[run.id] = time.monotonic()
        threading.Thread(
            target=self._run, args=(run, lease_token), name="refine-run", daemon=True
        ).start()
        return True

    def give_way(self) -> None:
        """Pause, the longer the more it works on, so that workers with less to do are first."""
        time.sleep(min(GIVE_WAY_SECONDS * len(self._held), _LONGEST_WAY_SECONDS))

    def _next(self) -> Waiting | None:
        lately = time.monotonic() - LOOK_SECONDS
        self._begun_at = {id_: at for id_, at in self._begun_at.items() if at > lately}
        # begun runs count as waiting until their thread has claimed them
        begun = self._held.keys() | self._begun_at.keys()
        limit, kept_free = len(begun) + 1, 1 if self._threads > 1 else 0
        automatic_limit = limit if self.free > kept_free else 0
        found = waiting_runs(clock.now(), limit, automatic_limit=automatic_limit)
        return next((run for run in found if run.id not in begun), None)

    def _run(self, run: Waiting, lease_token: uuid.UUID) -> None:
        try:
            with self._app.app_context():
                self._work_on(run, lease_token)
        except Exception as fault:  # the run itself has ended, or waits; a message may quote it
            _log.warning("a run failed", run_id=str(run.id), fault=type(fault).__name__)
        finally:
            self._ended.put(run.id)

    def await_end(self, seconds: float) -> bool:
        try:
            ended = self._ended.get(timeout=seconds) if seconds else self._ended.get_nowait()
        except queues.Empty:
            return False
        del self._held[ended]
        return True

    def stop(self) -> None:
        """Wait for the runs, which know that they are to stop; give up those that do not end."""
        deadline = time.monotonic() + STOP_SECONDS
        while self._held and (left := deadline - time.monotonic()) > 0:
            self.await_end(left)
        for run, lease_token in self._held.values():
            _give_up(run, lease_token)
        if stopping.stop_requested():
            _wake_others()


def _give_up(waiting: Waiting, lease_token: uuid.UUID) -> None:
    """End the run, unless another worker has claimed it since, with its own lease."""
    try:
        run = db.session.get(waiting.kind, waiting.id)
        if run is not None:
            run.end_if_still_held(lease_token)
        db.session.commit()
    except (SQLAlchemyError, RefineError) as fault:  # the tick ends it a little later
        _log.warning("could not end a run that did not stop", fault=type(fault).__name__)
    finally:
        db.session.remove()


def _wake_others() -> None:
    """Announce what was handed back; other workers find it a little later anyway."""
    with suppress(SQLAlchemyError, Unreachable):
        announce_waiting(clock.now(), SHORT_PATIENCE_SECONDS)
    db.session.remove()


def _return_large_blocks() -> None:
    """Let glibc return large blocks once they are free; it would keep some for each thread."""
    c_library = ctypes.CDLL(None)
    if hasattr(c_library, "mallopt"):
        for parameter, value in _MALLOC.items():
            c_library.mallopt(parameter, value)
