"""The heartbeat of a process that holds runs: one statement stamps all of them."""

import math
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from refine.extensions import db
from refine.extensions.connections import is_pooled
from refine.models import AccessGrant, MemoryTask, RefinementSession

INTERVAL_SECONDS = 10.0
# A failed beat is repeated soon, because a run without beats counts as lost (``LOST_AFTER``).
RETRY_SECONDS = 1.0

# Neither a row locked for long nor a slow disk may delay a beat until it is too late.
_LIMITS = text("SET lock_timeout = '2s'; SET statement_timeout = '5s'")


_TABLES = tuple(kind.__tablename__ for kind in (RefinementSession, MemoryTask, AccessGrant))


def _stamps(table: str) -> str:
    """The part of the beat for one kind of run; a row that is locked waits for the next beat.

    The stamp is by the database's clock, the only one that all who look for lost runs share.
    """
    return (
        f"stamped_{table} AS (UPDATE {table} SET heartbeat_at = statement_timestamp() WHERE id IN ("  # noqa: S608
        f"SELECT id FROM {table} WHERE id = ANY(:ids) AND lease_token = ANY(:lease_tokens) "
        "FOR NO KEY UPDATE SKIP LOCKED) RETURNING id)"
    )


_BEAT = text(
    f"WITH {', '.join(map(_stamps, _TABLES))} "  # noqa: S608 - our own names
    + " UNION ALL ".join(f"SELECT id FROM stamped_{table}" for table in _TABLES)  # noqa: S608
)


class _Held(NamedTuple):
    """A run that this process holds, and until when it may continue (by ``time.monotonic``)."""

    run_id: uuid.UUID
    until: float


@contextmanager
def beating(run_id: uuid.UUID, lease_token: uuid.UUID, until: float = math.inf) -> Iterator[None]:
    """Stamp the run at intervals, together with all others that this process holds.

    Not beyond ``until`` (by ``time.monotonic``): a run that takes longer hangs, and should
    count as lost.
    """
    heart = _Heart.join(db.engine, lease_token, _Held(run_id, until))
    try:
        yield
    finally:
        heart.leave(lease_token)


class _Heart:
    """Beats for all runs of a process, from a thread and a connection of its own.

    The connection is outside the pool and stays open, so that a busy pool delays no beat. The heart
    beats from when the first run joins until the last one leaves.
    """

    _lock = threading.Lock()
    _hearts: "dict[Engine, _Heart]" = {}

    def __init__(self, engine: Engine) -> None:
        self._key = engine
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._held: dict[uuid.UUID, _Held] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="refine-heartbeat", daemon=True)
        self._connection: Connection | None = None
        self._open = ExitStack()

    @classmethod
    def join(cls, engine: Engine, lease_token: uuid.UUID, held: _Held) -> "_Heart":
        """Have the process's heart beat for this run as well."""
        with cls._lock:
            heart = cls._hearts.setdefault(engine, cls(engine))
            heart._held[lease_token] = held
            if not heart._thread.is_alive():
                heart._thread.start()
        return heart

    def leave(self, lease_token: uuid.UUID) -> None:
        """Stop beating for this run; the last run stops the heart."""
        with self._lock:
            del self._held[lease_token]
            if self._held:
                return
            del self._hearts[self._key]
        self._stopped.set()
        # its connection must be closed before the servers are asked to stop
        self._thread.join(timeout=RETRY_SECONDS)

    def _beat(self) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            pause = INTERVAL_SECONDS if self._beat_once() else RETRY_SECONDS
        self._disconnect()

    def _beat_once(self) -> bool:
        """Stamp all runs; False if some could not be: it failed, or they are locked, or lost."""
        at = time.monotonic()
        with self._lock:
            held = {token: run for token, run in self._held.items() if at < run.until}
        try:
            if self._connection is None:
                self._connection = self._open.enter_context(self._engine.connect())
                self._connection.detach()
                if not is_pooled(self._connection):  # it would set them for others
                    self._connection.execute(_LIMITS)
            stamped = self._connection.scalars(
                _BEAT,
                {
                    "ids": [run.run_id for run in held.values()],
                    "lease_tokens": list(held),
                },
            ).all()
        except Exception:  # whatever it was: without this thread, all runs would count as lost
            self._disconnect()
            return False
        return len(stamped) == len(held)

    def _disconnect(self) -> None:
        self._connection = None
        with suppress(SQLAlchemyError):
            self._open.close()

    @classmethod
    def forget(cls) -> None:
        """Leave the hearts of the parent to the parent, after a fork."""
        cls._lock, cls._hearts = threading.Lock(), {}


os.register_at_fork(after_in_child=_Heart.forget)
