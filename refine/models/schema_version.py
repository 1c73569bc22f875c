"""Whether the database's schema is compatible with this version of Refine, and who upgrades it.

Code is compatible with a newer database if the migrations that it lacks only added something. One
that does more says ``breaks_older_code = True``. Each migration notes in the database the oldest
one that code must have: as the comment on Alembic's table, which any role may read.
"""

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple

import structlog
from alembic.script import Script, ScriptDirectory
from flask import current_app
from psycopg import Error as PsycopgError
from psycopg.errors import UndefinedTable
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from refine.errors import BeingUpgraded, Refused, Unreachable
from refine.extensions import db

# How long the check is not repeated after database and code were found to be compatible.
_BELIEVED_SECONDS = 10.0
_PAUSE_SECONDS = 1.0
# An upgrade waits no longer for another one.
LONGEST_WAIT_SECONDS = 600.0

_KEPT = "refine.schema_version"

_STORED = """
SELECT (SELECT version_num FROM alembic_version),
  obj_description('alembic_version'::regclass, 'pg_class')
"""
_NOTED = re.compile(r"from migration (\w+) on")

_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtext('refine.upgrade'))"
# the transaction holds nothing but the lock, for as long as an upgrade takes
_STAY = "SET LOCAL idle_in_transaction_session_timeout = 0"
_is_upgrading: ContextVar[bool] = ContextVar("refine.is_upgrading", default=False)

_log = structlog.get_logger(__name__)


class Compatibility(NamedTuple):
    """How the database's schema and the code compare; with a ``problem``, they are incompatible."""

    problem: str | None
    detail: str = "up to date"
    is_newer: bool = False
    is_empty: bool = False


def compatibility() -> Compatibility:
    """Compare the database with the code's own migrations, now."""
    present, oldest = _stored()
    own = _own_revisions(current_app.extensions["migrate"].directory)
    if present == own[0]:
        return Compatibility(None)
    if present is None:
        return Compatibility(
            "the database has no tables yet; run `refine db upgrade`", is_empty=True
        )
    if present in own:
        return Compatibility("the database is not at the newest migration; run `refine db upgrade`")
    if oldest in own:
        return Compatibility(None, f"at {present}, newer than this version, but compatible", True)
    return Compatibility(
        f"the database is at {present}, for a newer version of Refine than this; start that one",
        is_newer=True,
    )


def current() -> str | None:
    """Return the database's migration, whatever version of Refine it is of; None without tables.

    "(head)" follows the code's own newest one.
    """
    with db.engine.connect() as connection:
        present, _ = _read(connection.connection)
    newest = _own_revisions(current_app.extensions["migrate"].directory)[0]
    return f"{present} (head)" if present == newest else present


def require_compatible() -> None:
    """Raise BeingUpgraded if database and code are incompatible; looks every ten seconds."""
    if (problem := _problem()) is not None:
        raise BeingUpgraded(problem)


def must_wait() -> bool:
    """Tell whether work must wait because database and code are incompatible; log it once."""
    problem = _problem()
    if (problem is not None) != current_app.extensions.get(f"{_KEPT}.waits", False):
        current_app.extensions[f"{_KEPT}.waits"] = problem is not None
        if problem is not None:
            _log.warning(
                "waiting: the database schema is incompatible with this version", reason=problem
            )
        else:
            _log.warning("the database schema is compatible again")
    return problem is not None


def wait_until_compatible() -> None:
    """Return as soon as database and code are compatible, or the database does not answer."""
    while must_wait():
        time.sleep(_PAUSE_SECONDS)


def forget() -> None:
    """Look again at the next request: the database refused a statement."""
    current_app.extensions.pop(_KEPT, None)


def note_oldest_code(connection: Connection, applied: Iterable[Script]) -> None:
    """Note the oldest migration that code must have; ``applied`` are all, newest first."""
    oldest: str | None = None
    for script in applied:
        oldest = script.revision
        if getattr(script.module, "breaks_older_code", False):
            break
    # older versions read these words
    said = f"'Refine gets along with this from migration {oldest} on.'" if oldest else "NULL"
    connection.exec_driver_sql(f"COMMENT ON TABLE alembic_version IS {said}")


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
        problem = compatibility().problem
    except Unreachable:  # whoever needs the database next says so
        return None
    if problem is None:
        current_app.extensions[_KEPT] = time.monotonic()
    return problem


def _stored() -> tuple[str | None, str | None]:
    """Return the database's migration and the oldest that code must have, if it knows them.

    Raises Unreachable if it does not answer.
    """
    try:
        with closing(db.engine.raw_connection()) as connection:
            present, noted = _read(connection)
    except (PsycopgError, SQLAlchemyError) as error:
        raise Unreachable(f"the database's version is unknown ({type(error).__name__})") from None
    oldest = _NOTED.search(noted or "")
    return present, oldest[1] if oldest else None


def _read(connection: Any) -> tuple[str | None, str | None]:
    """Ask past SQLAlchemy, which takes longer than the database, and without a transaction."""
    driver = connection.driver_connection
    driver.autocommit = True
    try:
        present, noted = driver.execute(_STORED).fetchone()
    except UndefinedTable:
        return None, None
    finally:
        driver.autocommit = False
    return present, noted


@cache
def _own_revisions(directory: str) -> tuple[str, ...]:
    """Return the code's migrations, newest first."""
    scripts = ScriptDirectory(directory).walk_revisions()
    return tuple(script.revision for script in scripts)
