"""One worker's work on one run: every step is committed before the next, every write checks the
lease, which a heartbeat keeps alive, and a step is retried while the database is away
(``refine.outages``).
"""

import math
import threading
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Engine, Update, func, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from refine import telemetry
from refine.errors import Erased, ProviderError, RowAltered
from refine.extensions import db, is_pooled, safe_rollback
from refine.models import AccessGrant, LeaseLost, MemoryTask, RefinementSession, User
from refine.models.agent import only_key_of
from refine.models.agent.agent import ERASED
from refine.models.agent.eligibility import NOT_ACTIVE
from refine.models.runs.run import LOST_AFTER, WORKER_STOPPED
from refine.outages import Done, RetryPolicy, commit_once
from refine.settings import Settings

# A run that goes on for so long beyond its own limit hangs, and gets no more heartbeats.
OVERDUE_SECONDS = 120
INTERVAL_SECONDS = 10.0
# A failed beat is repeated soon, because a run without beats counts as lost (``LOST_AFTER``).
RETRY_SECONDS = 1.0

# Neither a row locked for long nor a slow disk may delay a beat until it is too late.
_LIMITS = text("SET lock_timeout = '2s'; SET statement_timeout = '5s'")

AnyRun = TypeVar("AnyRun", RefinementSession, MemoryTask, AccessGrant)


class RunEnded(Exception):
    """Ends the run with this status; None: after a failure. ``user`` asked for the end, if set."""

    def __init__(
        self,
        status: str | None,
        reason: str,
        error_kind: str | None = None,
        user: User | None = None,
    ) -> None:
        self.status = status
        self.reason = reason
        self.error_kind = error_kind
        self.user = user
        super().__init__(reason)


class RunWorker(Generic[AnyRun]):
    """Works on one run under its lease; each kind defines ``_work``."""

    _kind: Any
    _own_max_seconds: int | None = None

    @classmethod
    def work_on(
        cls,
        run_id: uuid.UUID,
        settings: Settings,
        *,
        is_stopping: Callable[[], bool] = lambda: False,
        lease_token: uuid.UUID | None = None,
        **options: Any,
    ) -> AnyRun | None:
        """Claim a run and work on it to its end, committing each step; None if it is not to claim.
        ``is_stopping``: end at the next step. Other exceptions end the run and are raised again.
        """
        if is_stopping():
            db.session.rollback()
            return None
        own = lease_token or uuid.uuid4()

        def claimed() -> "tuple[AnyRun, RunWorker[AnyRun] | None]":
            run = db.session.get_one(cls._kind, run_id)
            # ours already: the answer to the commit was lost
            is_ours = run.lease_token == own or run.claim(lease_token=own) is not None
            # made before the commit, from the row that the claim checked
            return run, cls(run, own, settings, is_stopping, **options) if is_ours else None

        retry = RetryPolicy(time.monotonic() + LOST_AFTER.total_seconds(), is_stopping)
        run, worker = commit_once(claimed, retry)
        if worker is None:
            return None
        worker.run()
        return run

    def __init__(
        self,
        run: AnyRun,
        lease_token: uuid.UUID,
        settings: Settings,
        is_stopping: Callable[[], bool],
        worked_seconds: float = 0.0,
    ) -> None:
        # reloaded after every commit
        self._run: AnyRun = run
        self._run_id = run.id
        self._agent_id, self._model_id = run.agent_id, run.model_id
        self._lease_token = lease_token
        self._settings = settings
        self._is_stopping = is_stopping
        self._max_seconds = self._own_max_seconds or settings.max_seconds
        self._deadline = time.monotonic() + self._max_seconds - worked_seconds
        self._until = self._deadline + OVERDUE_SECONDS
        self._retry = RetryPolicy(self._until, is_stopping)

    def run(self) -> None:
        """Do the work and record the outcome, whatever happens; a fault is raised again."""
        ending: RunEnded | None = None
        span = self._span(f"invoke_agent {type(self._run).__name__}")
        beats = beating(self._run_id, self._lease_token, until=self._until)
        with span, only_key_of(self._agent_id), beats:
            try:
                ending = self._work_to_end()
                if ending is not None:
                    self._finish(ending)
            except LeaseLost:
                # another process ended the run, or put it off, and recorded why
                safe_rollback()
            except BaseException as fault:
                safe_rollback()
                self._finish(ending or _ending_of(fault))
                raise

    # -- what each kind defines ------------------------------------------------------------------

    @abstractmethod
    def _work(self) -> None:
        """Do the work; raises RunEnded, unless it has ended the run itself."""

    def _end(self, run: AnyRun, ending: RunEnded) -> None:
        """Write an orderly end; for kinds whose ``_work`` raises one."""

    def _hand_back(self, run: AnyRun, reason: str) -> None:
        run.hand_back(reason)

    def _after_end(self) -> None:
        """Hook that is called after the end is committed."""

    def _is_stop_requested(self) -> bool:
        return False

    # -- steps -----------------------------------------------------------------------------------

    def _committed(self, work: Callable[[], Done]) -> Done:
        """Commit the work, retried while the database is away: twice if an answer was lost."""
        return commit_once(work, self._retry)

    def _work_to_end(self) -> RunEnded | None:
        try:
            self._work()
        except RunEnded as ending:
            return ending
        except ProviderError as fault:
            return RunEnded(None, str(fault), fault.kind)
        except Erased:  # meanwhile, so the model's answer cannot be stored
            return self._unavailable(ERASED)
        return None

    # -- the end ---------------------------------------------------------------------------------

    def _finish(self, ending: RunEnded) -> None:
        try:
            self._committed(lambda: self._write_end(ending))
        except LeaseLost:
            return
        self._after_end()

    def _write_end(self, ending: RunEnded) -> None:
        run = self._held()
        if ending.error_kind == WORKER_STOPPED:
            self._hand_back(run, ending.reason)
        elif ending.status is None:
            run.give_up(ending.reason, ending.error_kind)
        else:
            self._end(run, ending)

    def _span(
        self, name: str, attributes: telemetry.Attributes | None = None
    ) -> AbstractContextManager[None]:
        if not telemetry.is_on:
            return nullcontext()
        own = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.id": str(self._agent_id),
            "gen_ai.conversation.id": str(self._run_id),
            "gen_ai.request.model": self._model_id,
        }
        return telemetry.span(name, {**own, **(attributes or {})})

    def _check_may_continue(self) -> None:
        if self._has_lost_lease():
            raise LeaseLost(self._run.status)
        if self._is_stop_requested() or self._is_stopping():
            raise self._stopped()
        if not self._run.agent.active:
            raise self._unavailable(NOT_ACTIVE)
        if time.monotonic() >= self._deadline:
            raise self._out_of_time()

    def _stopped(self) -> RunEnded:
        return RunEnded(None, "its process was asked to stop", WORKER_STOPPED)

    def _unavailable(self, reason: str) -> RunEnded:
        return RunEnded(None, reason, "unavailable")

    def _out_of_time(self) -> RunEnded:
        reason = f"the limit of {self._max_seconds} seconds was reached"
        return RunEnded(None, reason, "timeout")

    def _held(self) -> AnyRun:
        run = self._run.held(self._run_id, self._lease_token)
        if (run.agent_id, run.model_id) != (self._agent_id, self._model_id):
            raise RowAltered(f"{type(run).__name__} {run.id}")
        return run

    def _has_lost_lease(self) -> bool:
        return self._run.lease_token != self._lease_token


def _ending_of(fault: BaseException) -> RunEnded:
    if isinstance(fault, KeyboardInterrupt):
        return RunEnded(None, "interrupted", "interrupted")
    return RunEnded(None, f"internal error ({type(fault).__name__})", "internal")


# -- the heartbeat: one thread stamps all runs of a process ---------------------------------------

_lock = threading.Lock()
_hearts: dict[Engine, "_Heart"] = {}


@contextmanager
def beating(run_id: uuid.UUID, lease_token: uuid.UUID, until: float = math.inf) -> Iterator[None]:
    """Stamp the run at intervals, until this ``time.monotonic``: a hanging run counts as lost."""
    engine = db.engine
    with _lock:
        heart = _hearts.get(engine)
        if heart is None:
            heart = _hearts[engine] = _Heart(engine)
        heart.held[lease_token] = (run_id, until)
    try:
        yield
    finally:
        with _lock:
            del heart.held[lease_token]
            is_last = not heart.held
            if is_last:
                del _hearts[engine]
        if is_last:
            heart.stop()


class _Heart:
    """Its connection is outside the pool and stays open, so that a busy pool delays no beat."""

    def __init__(self, engine: Engine) -> None:
        # each run's id by its lease, and until when it may continue
        self.held: dict[uuid.UUID, tuple[uuid.UUID, float]] = {}
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="refine-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        # its connection must be closed before the servers are asked to stop
        self._thread.join(timeout=RETRY_SECONDS)

    def _beat(self) -> None:
        connection, opened, pause = None, ExitStack(), 0.0
        while not self._stopped.wait(pause):
            try:
                connection = connection or self._connect(opened)
                pause = INTERVAL_SECONDS if self._stamp(connection) else RETRY_SECONDS
            except Exception:  # any fault: without this thread, all runs would count as lost
                _close(opened)
                connection, pause = None, RETRY_SECONDS
        _close(opened)

    def _connect(self, opened: ExitStack) -> Connection:
        connection = opened.enter_context(self._engine.connect())
        connection.detach()
        if not is_pooled(connection):  # it would set them for others
            connection.execute(_LIMITS)
        return connection

    def _stamp(self, connection: Connection) -> bool:
        at = time.monotonic()
        with _lock:
            held = {token: id_ for token, (id_, until) in self.held.items() if at < until}
        stamped = 0
        for kind in (RefinementSession, MemoryTask, AccessGrant):
            beat = _beat_for(kind, list(held.values()), list(held))
            stamped += len(connection.execute(beat).all())
        return stamped == len(held)


def _beat_for(
    kind: type[RefinementSession | MemoryTask | AccessGrant],
    ids: list[uuid.UUID],
    lease_tokens: list[uuid.UUID],
) -> Update:
    """Stamp runs by the database's clock, which all share; skip locked ones until the next beat."""
    held = select(kind.id).where(kind.id.in_(ids), kind.lease_token.in_(lease_tokens))
    free = held.with_for_update(key_share=True, skip_locked=True)
    stamped = update(kind).where(kind.id.in_(free)).returning(kind.id)
    return stamped.values(heartbeat_at=func.statement_timestamp())


def _close(opened: ExitStack) -> None:
    with suppress(SQLAlchemyError):
        opened.close()
