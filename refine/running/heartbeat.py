"""The heartbeat of a worker that holds a run."""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, TextClause, text
from sqlalchemy.exc import SQLAlchemyError

from refine import clock
from refine.extensions import db
from refine.models import AccessGrant, MemoryTask, RefinementSession
from refine.models.runs import Run

INTERVAL_SECONDS = 10.0
# A failed beat is repeated soon, because a run without beats counts as lost (``LOST_AFTER``).
RETRY_SECONDS = 1.0

# Neither a row locked for long nor a slow disk may delay a beat until it is too late.
_LIMITS = text("SET lock_timeout = '2s'; SET statement_timeout = '5s'")
_BEATS: dict[type[Run], TextClause] = {
    kind: text(
        f"UPDATE {kind.__tablename__} SET heartbeat_at = :at "  # noqa: S608 - our own names
        "WHERE id = :id AND lease_token = :lease_token"
    )
    for kind in (RefinementSession, MemoryTask, AccessGrant)
}


@contextmanager
def beating(run_id: uuid.UUID, lease_token: uuid.UUID, kind: type[Run]) -> Iterator[None]:
    """Stamp the run at intervals, from a thread and a connection of its own.

    The connection is outside the pool and stays open, so that a busy pool delays no beat.
    """
    heart = _Heart(db.engine, run_id, lease_token, kind)
    thread = threading.Thread(target=heart.beat, name="refine-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        heart.stopped.set()
        # its connection must be closed before the servers are asked to stop
        thread.join(timeout=RETRY_SECONDS)


class _Heart:
    def __init__(
        self, engine: Engine, run_id: uuid.UUID, lease_token: uuid.UUID, kind: type[Run]
    ) -> None:
        self.stopped = threading.Event()
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._run_id = run_id
        self._statement = _BEATS[kind]
        self._lease_token = lease_token
        self._connection: Connection | None = None

    def beat(self) -> None:
        """Beat until stopped."""
        pause = 0.0
        while not self.stopped.wait(pause):
            pause = INTERVAL_SECONDS if self._beat_once() else RETRY_SECONDS
        self._disconnect()

    def _beat_once(self) -> bool:
        try:
            if self._connection is None:
                self._connection = self._engine.connect()
                self._connection.detach()
                self._connection.execute(_LIMITS)
            self._connection.execute(
                self._statement,
                {"at": clock.now(), "id": self._run_id, "lease_token": self._lease_token},
            )
        except SQLAlchemyError:
            self._disconnect()
            return False
        return True

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
