"""The sign of life of the worker that holds a session, or a memory task."""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from refine import clock
from refine.extensions import db
from refine.models import MemoryTask, RefinementSession

Held = type[RefinementSession] | type[MemoryTask]

INTERVAL_SECONDS = 10.0
# A beat that failed is made up for at once: the session is lost after 35 seconds without any.
RETRY_SECONDS = 1.0

# Neither a row that is locked for long nor a slow disk may hold a beat up until it is too late.
_LIMITS = text("SET lock_timeout = '2s'; SET statement_timeout = '5s'")
_BEATS = {
    kind: text(
        f"UPDATE {kind.__tablename__} SET heartbeat_at = :at "  # noqa: S608 - names of ours
        "WHERE id = :id AND lease_token = :lease_token AND status = 'running'"
    )
    for kind in (RefinementSession, MemoryTask)
}


@contextmanager
def beating(
    held_id: uuid.UUID, lease_token: uuid.UUID, kind: Held = RefinementSession
) -> Iterator[None]:
    """Stamp the session (or the task) every 10 seconds, from a thread and a connection of its own.

    The connection is not of the pool, and is kept: however busy pool and server are, the beat
    does not wait for one to be free.
    """
    heart = _Heart(db.engine, held_id, lease_token, kind)
    thread = threading.Thread(target=heart.beat, name="refine-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        heart.stopped.set()
        # its connection is closed before the servers may be asked to stop
        thread.join(timeout=RETRY_SECONDS)


class _Heart:
    def __init__(
        self, engine: Engine, held_id: uuid.UUID, lease_token: uuid.UUID, kind: Held
    ) -> None:
        self.stopped = threading.Event()
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._held_id = held_id
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
                {"at": clock.now(), "id": self._held_id, "lease_token": self._lease_token},
            )
        except SQLAlchemyError:
            self._disconnect()
            return False
        return True

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
