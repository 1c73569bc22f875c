"""Whether the database's schema fits this version, and locks for upgrades.

A migration whose file says ``is_additive = True`` lets the release before it go on working. The
database keeps its migration, and those of all releases that may, as a comment: a release does not
have the files of a later one.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import structlog
from alembic.runtime.migration import MigrationInfo
from alembic.script import ScriptDirectory
from flask import current_app
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from refine.diagnoses import Finding
from refine.errors import BeingUpgraded, Refused, Unreachable
from refine.extensions import db
from refine.outages import connection_fault

# How long the check is not repeated after database and code were found to be compatible.
_BELIEVED_SECONDS = 10.0
_PAUSE_SECONDS = 1.0
# An upgrade waits no longer for another one.
_LONGEST_WAIT = "10min"

# Migrations of before 1.0.0, which were renumbered and merged.
_BEFORE_RELEASES = "00[0-9][0-9]"

_KEPT = "refine.schema_version"
_WAITS = "refine.schema_version.waits"

TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtext('refine.upgrade'))"
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('refine.upgrade'))"
_ELSEWHERE = (
    "SELECT schemaname FROM pg_tables "
    "WHERE tablename = 'alembic_version' AND schemaname <> current_schema()"
)
_is_upgrading: ContextVar[bool] = ContextVar("refine.is_upgrading", default=False)

_log = structlog.get_logger(__name__)


_CURRENT = (
    "SELECT version_num, obj_description('alembic_version'::regclass, 'pg_class') "
    "FROM alembic_version"
)


def current() -> str | None:
    """Return the database's migration; None without tables; Unreachable."""
    return _found()[0]


def _found() -> tuple[str | None, list[str]]:
    """Return the database's migration, and those of the releases that it works with."""
    try:
        with db.engine.connect() as connection:
            if connection.exec_driver_sql("SELECT to_regclass('alembic_version')").scalar() is None:
                return None, []
            row = connection.exec_driver_sql(_CURRENT).one_or_none()
    except SQLAlchemyError as error:
        raise Unreachable(connection_fault(error)) from None
    return (row[0], (row[1] or "").split()) if row is not None else (None, [])


def note_releases(connection: Connection, step: MigrationInfo) -> None:
    """Keep with which releases the database works, in the transaction of a migration."""
    script: Any = step.up_revision
    works_with = [script.revision] if step.is_upgrade else []
    while works_with and getattr(script.module, "is_additive", False):
        script = step.revision_map.get_revision(script.down_revision)
        works_with.append(script.revision)
    listed = " ".join(works_with)
    connection.exec_driver_sql(f"COMMENT ON TABLE alembic_version IS '{listed}'")


def migrations() -> tuple[str, ...]:
    return _migrations_in(current_app.extensions["migrate"].directory)


@cache
def _migrations_in(directory: str) -> tuple[str, ...]:
    return tuple(script.revision for script in ScriptDirectory(directory).walk_revisions())


def is_behind() -> bool:
    """Tell whether this version's migrations are missing here, in a database that answers."""
    try:
        found = problem()
    except Unreachable:
        return False
    return found is not None and found.code in ("schema_none", "schema_behind")


def problem() -> Finding | None:
    (migration, works_with), (newest, *older) = _found(), migrations()
    if newest == migration or (newest in works_with and works_with[0] == migration):
        return None
    if migration is None:
        with db.engine.connect() as connection:
            schema = connection.exec_driver_sql(_ELSEWHERE).scalar()
        return Finding.of("schema_elsewhere" if schema else "schema_none", schema=schema)
    if migration in older:
        return Finding.of("schema_behind")
    if re.fullmatch(_BEFORE_RELEASES, migration or ""):
        return Finding.of("schema_unreleased")
    return Finding.of("schema_ahead", migration=migration)


def require_compatible() -> None:
    """Raise BeingUpgraded if database and code are incompatible; looks every ten seconds."""
    if (reason := _problem()) is not None:
        raise BeingUpgraded(reason)


def must_wait() -> bool:
    """Tell whether database and code are incompatible; log it once."""
    reason = _problem()
    if reason != current_app.extensions.get(_WAITS):
        current_app.extensions[_WAITS] = reason
        if reason is None:
            _log.warning("the database schema is compatible again")
        else:
            _log.warning(
                "waiting: the database schema is incompatible with this version", reason=str(reason)
            )
    return reason is not None


def wait_until_compatible() -> None:
    """Return as soon as database and code are compatible, or the database does not answer."""
    while must_wait():
        time.sleep(_PAUSE_SECONDS)


def forget() -> None:
    """Look again: the database refused a statement."""
    current_app.extensions.pop(_KEPT, None)


@contextmanager
def upgrading(longest_wait: str = _LONGEST_WAIT) -> Iterator[None]:
    """Keep other upgrades out, nested or after a wait (Refused); works behind a pooler."""
    if _is_upgrading.get():
        yield
        return
    with db.engine.connect() as connection:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{longest_wait}'")
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
        if not connection.exec_driver_sql(TRY_LOCK).scalar():
            _log.warning("waiting for another upgrade of this database")
            try:
                connection.exec_driver_sql(_LOCK)
            except OperationalError:
                raise Refused("another upgrade is running; try again once it ends") from None
        token = _is_upgrading.set(True)
        try:
            yield
        finally:
            _is_upgrading.reset(token)


def _problem() -> Finding | None:
    kept: float | None = current_app.extensions.get(_KEPT)
    if kept is not None and 0 <= time.monotonic() - kept < _BELIEVED_SECONDS:
        return None
    try:
        found = problem()
    except Unreachable:  # the next use of the database reports that
        return None
    if found is None:
        current_app.extensions[_KEPT] = time.monotonic()
    return found
