"""The heartbeat of a process: one thread stamps all of its runs."""

import math
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from sqlalchemy import Connection, Engine, Update, func, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from refine.extensions import db, is_pooled
from refine.models import AccessGrant, MemoryTask, RefinementSession

INTERVAL_SECONDS = 10.0
# A failed beat is repeated soon, because a run without beats counts as lost (``LOST_AFTER``).
RETRY_SECONDS = 1.0

_KINDS = (RefinementSession, MemoryTask, AccessGrant)
# Neither a row locked for long nor a slow disk may delay a beat until it is too late.
_LIMITS = text("SET lock_timeout = '2s'; SET statement_timeout = '5s'")

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
        for kind in _KINDS:
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
