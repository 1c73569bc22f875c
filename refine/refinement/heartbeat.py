"""The sign of life of the worker that holds a session."""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

from refine import clock
from refine.extensions import db

INTERVAL_SECONDS = 15.0

_BEAT = text(
    "UPDATE refinement_sessions SET heartbeat_at = :at "
    "WHERE id = :session_id AND lease_token = :lease_token AND status = 'running'"
)


@contextmanager
def beating(session_id: uuid.UUID, lease_token: uuid.UUID) -> Iterator[None]:
    """Stamp the session every 15 seconds, from a thread and a connection of its own."""
    stop = threading.Event()
    engine = db.engine

    def beat() -> None:
        while not stop.wait(INTERVAL_SECONDS):
            _beat(engine, session_id, lease_token)

    thread = threading.Thread(target=beat, name="refine-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()


def _beat(engine: Engine, session_id: uuid.UUID, lease_token: uuid.UUID) -> None:
    try:
        with engine.begin() as connection:
            connection.execute(
                _BEAT,
                {"at": clock.now(), "session_id": session_id, "lease_token": lease_token},
            )
    except SQLAlchemyError:
        # one missed beat is no loss; six are, and then the session is not ours any more
        return
