"""Connections to PostgreSQL: how long they wait, when they are replaced, what their errors say."""

import time
from select import POLLIN, poll
from typing import Any

import psycopg
from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine, ExceptionContext
from sqlalchemy.exc import DBAPIError, InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry, Pool

_USED_AT = "refine_used_at"

# A server that vanished without a word is given up in time for a run to outlive it: libpq would
# wait for a quarter of an hour.
CONNECT_ARGS = {
    "connect_timeout": 10,
    "tcp_user_timeout": 15_000,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
}
# For this long after its use, a silent connection is assumed to be open, as in TCP.
_TRUSTED_SECONDS = CONNECT_ARGS["keepalives_idle"]
# A pooler in transaction mode gives each transaction another connection to the server.
POOLED_CONNECT_ARGS = {**CONNECT_ARGS, "prepare_threshold": None}

# No request or job waits for ever on a lock, nor holds one while it does nothing.
_LIMITS = "SET {0} lock_timeout = '20s'; SET {0} idle_in_transaction_session_timeout = '60s'"


@event.listens_for(Engine, "connect")
def _bound_waiting(connection: Any, _record: Any) -> None:
    if connection.prepare_threshold is not None:
        with connection.cursor() as cursor:
            cursor.execute(_LIMITS.format("SESSION"))
        connection.commit()


@event.listens_for(Pool, "checkin")
def _note_use(_connection: Any, record: ConnectionPoolEntry) -> None:
    record.info[_USED_AT] = time.monotonic()


@event.listens_for(Pool, "checkout")
def _replace_lost(connection: Any, record: ConnectionPoolEntry, _proxy: Any) -> None:
    """Take a new connection if the server of this one is gone.

    A test takes as long as a short statement. A server that ends a connection says so; only to
    find one that vanished silently is a connection tested, after a while without an answer. A
    new connection is not tested: SQLAlchemy replaces a connection only once.
    """
    used_at = record.info.get(_USED_AT)
    if used_at is None or _is_trusted(connection, used_at) or _answers(connection):
        return
    raise InvalidatePoolError


def _is_trusted(connection: Any, used_at: float) -> bool:
    return time.monotonic() < used_at + _TRUSTED_SECONDS and _is_silent(connection)


def _is_silent(connection: Any) -> bool:
    """Whether the server has sent nothing that was not read, nor closed the connection."""
    news = poll()
    news.register(connection.fileno(), POLLIN)
    return not news.poll(0)


def _answers(connection: Any) -> bool:
    try:
        connection.autocommit = True  # otherwise a transaction would begin
        connection.execute("")
        connection.autocommit = False
    except psycopg.Error:
        return False
    return True


@event.listens_for(Engine, "begin")
def _bound_waiting_in_transaction(connection: Connection) -> None:
    driver: Any = connection.connection.dbapi_connection
    if is_pooled(connection) and not driver.autocommit:
        connection.exec_driver_sql(_LIMITS.format("LOCAL"))


def is_pooled(connection: Connection) -> bool:
    """Whether it leads to a pooler: each transaction is then with another server process."""
    driver: Any = connection.connection.dbapi_connection
    return bool(driver.prepare_threshold is None)


@event.listens_for(Engine, "handle_error")
def _scrub(context: ExceptionContext) -> None:
    """Take row contents out of a database error; class and SQLSTATE stay.

    PostgreSQL quotes whole rows in DETAIL, and values in the first line of data exceptions (class
    22). The error is changed in place, because tracebacks print the original as its cause.
    """
    error, original = context.sqlalchemy_exception, context.original_exception
    diagnosis = getattr(original, "diag", None)
    if not isinstance(error, DBAPIError) or diagnosis is None or diagnosis.sqlstate is None:
        return
    if diagnosis.sqlstate.startswith("22"):
        said = f"a value does not fit its column (SQLSTATE {diagnosis.sqlstate})"
    else:
        said = diagnosis.message_primary or f"SQLSTATE {diagnosis.sqlstate}"
    original.args = (said,)
    vars(original)["_info"] = None
    error.args = (f"({type(original).__name__}) {said}",)
    error.params = None
