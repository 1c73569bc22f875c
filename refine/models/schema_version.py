"""Whether the database's schema fits this version, and locks for upgrades."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import structlog
from alembic.script import ScriptDirectory
from flask import current_app
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from refine.errors import BeingUpgraded, Refused, Unreachable
from refine.extensions import db
from refine.outages import NO_ANSWER

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
_is_upgrading: ContextVar[bool] = ContextVar("refine.is_upgrading", default=False)

_log = structlog.get_logger(__name__)


def current() -> str | None:
    """Return the database's migration; None without tables; Unreachable."""
    try:
        with db.engine.connect() as connection:
            if connection.exec_driver_sql("SELECT to_regclass('alembic_version')").scalar() is None:
                return None
            return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    except SQLAlchemyError:
        raise Unreachable(NO_ANSWER) from None


def migrations() -> tuple[str, ...]:
    return _migrations_in(current_app.extensions["migrate"].directory)


@cache
def _migrations_in(directory: str) -> tuple[str, ...]:
    return tuple(script.revision for script in ScriptDirectory(directory).walk_revisions())


def is_behind() -> bool:
    """Tell whether this version's migrations are missing; not of an unreachable database."""
    try:
        migration = current()
    except Unreachable:
        return False
    return migration is None or migration in migrations()[1:]


def problem() -> str | None:
    migration, (newest, *older) = current(), migrations()
    if migration == newest:
        return None
    if migration is None:
        return "the database has no tables yet; run `refine db upgrade`"
    if migration in older:
        return "the database is not at the newest migration; run `refine db upgrade`"
    if re.fullmatch(_BEFORE_RELEASES, migration):
        return (
            "the database was made before Refine 1.0.0 and cannot be upgraded: export what its "
            "agents keep with the version that made it, and start with an empty one"
        )
    return (
        f"the database is at {migration}, for another version of Refine than this; start that one"
    )


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
                "waiting: the database schema is incompatible with this version", reason=reason
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


def _problem() -> str | None:
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
