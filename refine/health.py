"""Whether what Refine stands on is there."""

from dataclasses import dataclass

from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from flask import Flask
from rq import Worker
from sqlalchemy.exc import SQLAlchemyError

from refine.errors import Unreachable, WrongKey
from refine.extensions import db
from refine.jobs.queue import queue, redis_connection
from refine.models import WrappedKey


@dataclass(frozen=True)
class Check:
    """One thing that must be there; ``problem`` says what is wrong and what to do."""

    name: str
    problem: str | None
    detail: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.problem is None


def checks(app: Flask) -> list[Check]:
    """Return database, migrations, keys and redis, in this order: all must be there."""
    away = _database()
    unfit = away or _migrations(app)
    return [
        Check("database", away, "PostgreSQL answers"),
        Check("migrations", unfit, "the newest one is in place"),
        Check("keys", unfit or _keys(), "REFINE_ENCRYPTION_KEYS opens every data key"),
        Check("redis", _redis(), "it answers"),
    ]


def workers() -> Check:
    """Tell how many workers there are and how many sessions wait; none is no fault by itself."""
    try:
        with redis_connection() as connection:
            alive, waiting = Worker.count(connection=connection), queue(connection).count
    except Unreachable as error:
        return Check("workers", str(error))
    return Check("workers", None, f"{alive} running, {waiting} sessions waiting")


def _database() -> str | None:
    try:
        with db.engine.connect():
            return None
    except SQLAlchemyError:
        return "PostgreSQL does not answer at DATABASE_URL; start it, or mend the URL"


def _migrations(app: Flask) -> str | None:
    script = ScriptDirectory(app.extensions["migrate"].directory)
    with db.engine.connect() as connection:
        present = MigrationContext.configure(connection).get_current_revision()
    if present == script.get_current_head():
        return None
    return "the database is not at the newest migration; run `refine db upgrade`"


def _keys() -> str | None:
    try:
        WrappedKey.check_keyring()
    except WrongKey as error:
        return str(error)
    finally:
        db.session.rollback()
    return None


def _redis() -> str | None:
    try:
        with redis_connection() as connection:
            connection.ping()
    except Unreachable as error:
        return str(error)
    return None
