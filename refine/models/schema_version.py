"""Whether the database's schema is the one of this version of Refine, and who upgrades it."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import structlog
from alembic.script import ScriptDirectory
from flask import current_app
from psycopg import Error as PsycopgError
from psycopg.errors import UndefinedTable
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from refine.database_errors import NO_ANSWER
from refine.errors import BeingUpgraded, Refused, Unreachable
from refine.extensions import db

# How long the check is not repeated after database and code were found to be compatible.
_BELIEVED_SECONDS = 10.0
_PAUSE_SECONDS = 1.0
# An upgrade waits no longer for another one.
LONGEST_WAIT_SECONDS = 600.0

_KEPT = "refine.schema_version"

_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtext('refine.upgrade'))"
# the transaction holds nothing but the lock, for as long as an upgrade takes
_STAY = "SET LOCAL idle_in_transaction_session_timeout = 0"
_is_upgrading: ContextVar[bool] = ContextVar("refine.is_upgrading", default=False)

_log = structlog.get_logger(__name__)


def current() -> str | None:
    """Return the database's migration; None without tables; Unreachable if it does not answer."""
    try:
        with closing(db.engine.raw_connection()) as connection:
            return _read(connection)
    except (PsycopgError, SQLAlchemyError):
        raise Unreachable(NO_ANSWER) from None


def is_newest(migration: str | None) -> bool:
    """Tell whether it is the newest migration of this version."""
    return migration == _own_migrations()[0]


def is_known(migration: str) -> bool:
    """Tell whether this version has the migration."""
    return migration in _own_migrations()


def problem() -> str | None:
    """Return why this version cannot work with the database as it is now; None if it can."""
    migration = current()
    if is_newest(migration):
        return None
    if migration is None:
        return "the database has no tables yet; run `refine db upgrade`"
    if is_known(migration):
        return "the database is not at the newest migration; run `refine db upgrade`"
    return (
        f"the database is at {migration}, for another version of Refine than this; start that one"
    )


def require_compatible() -> None:
    """Raise BeingUpgraded if database and code are incompatible; looks every ten seconds."""
    if (reason := _problem()) is not None:
        raise BeingUpgraded(reason)


def must_wait() -> bool:
    """Tell whether work must wait because database and code are incompatible; log it once."""
    reason = _problem()
    if (reason is not None) != current_app.extensions.get(f"{_KEPT}.waits", False):
        current_app.extensions[f"{_KEPT}.waits"] = reason is not None
        if reason is not None:
            _log.warning(
                "waiting: the database schema is incompatible with this version", reason=reason
            )
        else:
            _log.warning("the database schema is compatible again")
    return reason is not None


def wait_until_compatible() -> None:
    """Return as soon as database and code are compatible, or the database does not answer."""
    while must_wait():
        time.sleep(_PAUSE_SECONDS)


def forget() -> None:
    """Look again at the next request: the database refused a statement."""
    current_app.extensions.pop(_KEPT, None)


@contextmanager
def upgrading(longest_seconds: float = LONGEST_WAIT_SECONDS) -> Iterator[None]:
    """Keep other upgrades of this database out, once they have ended; may be nested.

    Raises Refused if another one still runs after ``longest_seconds``. The lock belongs to a
    transaction, so that it works behind a pooler, and ends with its process.
    """
    if _is_upgrading.get():
        yield
        return
    with db.engine.connect() as connection:
        _lock(connection, longest_seconds)
        token = _is_upgrading.set(True)
        try:
            yield
        finally:
            _is_upgrading.reset(token)


def _lock(connection: Connection, longest_seconds: float) -> None:
    deadline = time.monotonic() + longest_seconds
    if not _has_locked(connection):
        _log.warning("waiting for another upgrade of this database")
        while not _has_locked(connection):
            if time.monotonic() >= deadline:
                raise Refused("another upgrade of this database is running; try again once it ends")
            time.sleep(_PAUSE_SECONDS)
    connection.exec_driver_sql(_STAY)


def _has_locked(connection: Connection) -> bool:
    connection.rollback()
    return bool(connection.exec_driver_sql(_TRY_LOCK).scalar_one())


def _problem() -> str | None:
    kept: float | None = current_app.extensions.get(_KEPT)
    if kept is not None and 0 <= time.monotonic() - kept < _BELIEVED_SECONDS:
        return None
    try:
        found = problem()
    except Unreachable:  # whoever needs the database next says so
        return None
    if found is None:
        current_app.extensions[_KEPT] = time.monotonic()
    return found


def _read(connection: Any) -> str | None:
    """Ask past SQLAlchemy, which takes longer than the database, and without a transaction."""
    driver = connection.driver_connection
    driver.autocommit = True
    try:
        found = driver.execute("SELECT version_num FROM alembic_version").fetchone()
    except UndefinedTable:
        return None
    finally:
        driver.autocommit = False
    return found[0] if found is not None else None


def _own_migrations() -> tuple[str, ...]:
    """Return this version's migrations, newest first."""
    return _migrations_in(current_app.extensions["migrate"].directory)


@cache
def _migrations_in(directory: str) -> tuple[str, ...]:
    scripts = ScriptDirectory(directory).walk_revisions()
    return tuple(script.revision for script in scripts)
