"""Whether what Refine stands on is there."""

from dataclasses import dataclass

from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from flask import Flask
from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from refine.extensions import db
from refine.settings import current

_SECONDS = 2


@dataclass(frozen=True)
class Check:
    """One thing that must be there; ``problem`` says what is wrong and what to do."""

    name: str
    problem: str | None

    @property
    def is_ok(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.problem is None


def checks(app: Flask) -> list[Check]:
    """Return database, migrations and redis, in this order."""
    return [
        Check("database", problem := _database()),
        Check("migrations", _migrations(app) if problem is None else "the database is away"),
        Check("redis", _redis()),
    ]


def _database() -> str | None:
    try:
        with db.engine.connect():
            return None
    except SQLAlchemyError:
        return "PostgreSQL does not answer at DATABASE_URL"


def _migrations(app: Flask) -> str | None:
    script = ScriptDirectory(app.extensions["migrate"].directory)
    with db.engine.connect() as connection:
        present = MigrationContext.configure(connection).get_current_revision()
    if present == script.get_current_head():
        return None
    return "the database is not at the newest migration; run `refine db upgrade`"


def _redis() -> str | None:
    try:
        with Redis.from_url(
            current().redis_url, socket_connect_timeout=_SECONDS, socket_timeout=_SECONDS
        ) as redis:
            redis.ping()
    except (RedisError, OSError):
        return "Redis does not answer at REDIS_URL"
    return None
