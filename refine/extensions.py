"""The Flask extensions, the base of all models, and connections. Nothing connects at import."""

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import psycopg
from flask import Response, request
from flask_login import LoginManager
from flask_migrate import Migrate
from flask_sqlalchemy import SQLAlchemy
from flask_sqlalchemy.session import Session
from flask_wtf import CSRFProtect
from sqlalchemy import (
    JSON,
    Column,
    ColumnElement,
    Connection,
    DateTime,
    MetaData,
    Table,
    Text,
    event,
    func,
    select,
    text,
)
from sqlalchemy.engine import Dialect, Engine, ExceptionContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, registry
from sqlalchemy.orm.exc import StaleDataError
from sqlalchemy.types import TypeDecorator

from refine.errors import ChangedMeanwhile, ClocksDiffer, InvalidValue

# A server that vanished without a word is given up in time for a run to outlive it: libpq would
# wait for a quarter of an hour.
CONNECT_ARGS = {
    "connect_timeout": 10,
    "tcp_user_timeout": 15_000,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "client_encoding": "utf8",  # whatever the database's is
}
# A pooler in transaction mode gives each transaction another connection to the server.
POOLED_CONNECT_ARGS = {**CONNECT_ARGS, "prepare_threshold": None}

_AFTER_COMMIT = "refine.after_commit"

# By so much the clocks of servers may differ.
CLOCKS_DIFFER_BY = timedelta(seconds=30)


class UtcDateTime(TypeDecorator[datetime]):
    impl = DateTime(timezone=True)
    cache_ok = True
    python_type = datetime

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise InvalidValue("a time without time zone cannot be stored; use aware times")
        return value.astimezone(UTC) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value.astimezone(UTC) if value is not None else None


# An instant, or a column of instants.
Instant = datetime | ColumnElement[datetime]


_CONSTRAINT_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """The base of all models: names every constraint, stores every time in UTC."""

    registry = registry(
        metadata=MetaData(naming_convention=_CONSTRAINT_NAMES),
        type_annotation_map={datetime: UtcDateTime},
    )


_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATETIME


def canonical_json(value: Any) -> str:
    """Return the canonical text of a JSON value, to hash or send; NaN becomes null."""
    try:
        return orjson.dumps(value, option=_SORTED).decode()
    except orjson.JSONEncodeError:  # half a character, a large number, or a class of our own
        return stored_json(value)


def stored_json(value: Any) -> str:
    """Return the same text, to store: ValueError for NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


class _Session(Session):
    def flush(self, objects: Any = None) -> None:
        try:
            super().flush(objects)
        except StaleDataError:
            raise ChangedMeanwhile from None


db = SQLAlchemy(
    model_class=Base,
    session_options={"class_": _Session},
    engine_options={
        "hide_parameters": True,
        # reuse few connections: they have prepared the frequent statements
        "pool_use_lifo": True,
        "pool_pre_ping": True,  # the server may have been restarted
        "json_serializer": stored_json,
        "connect_args": CONNECT_ARGS,
    },
)
migrate = Migrate()
login = LoginManager()
csrf = CSRFProtect()


def database_now() -> datetime:
    """Return the current instant by the database's clock, which is the same for every process."""
    return db.session.execute(select(func.clock_timestamp(type_=UtcDateTime()))).scalar_one()


def later_now() -> datetime:
    """Return the later of the database's and this process's time, as a clock may be set back."""
    return max(database_now(), datetime.now(UTC))


def agreed_now() -> datetime:
    """Return ``database_now``; ClocksDiffer if this process's clock shows another time."""
    before = datetime.now(UTC)
    shown = database_now()
    require_agreement(shown, before)
    return shown


def require_agreement(shown: datetime, before: datetime) -> None:
    """Raise ClocksDiffer unless the database's clock may have ``shown`` this since ``before``."""
    now = datetime.now(UTC)
    if before - CLOCKS_DIFFER_BY <= shown <= now + CLOCKS_DIFFER_BY:
        return
    apart = abs(shown - now)
    raise ClocksDiffer(
        f"the clocks of the database and of this server differ by {apart.total_seconds():,.0f} "
        "seconds: until they agree, nothing is read and no agent is asked for access; "
        "synchronize the clocks, and look for a function clock_timestamp() in the database"
    )


def is_read_only() -> bool:
    return bool(db.session.scalar(text("SHOW transaction_read_only")) == "on")


def after_commit(act: Callable[[], object]) -> None:
    """Do this when the current transaction commits; forget it when that rolls back."""
    db.session().info.setdefault(_AFTER_COMMIT, []).append(act)


@event.listens_for(Session, "after_commit")
def _act_after_commit(session: Any) -> None:
    if not session.in_nested_transaction():  # of a savepoint, nothing is committed yet
        for act in session.info.pop(_AFTER_COMMIT, []):
            act()


@event.listens_for(Session, "after_soft_rollback")
def _forget_after_rollback(session: Any, _transaction: Any) -> None:
    session.info.pop(_AFTER_COMMIT, None)


def safe_rollback() -> None:
    """Roll back, even if the connection was lost in the middle of a statement."""
    try:
        db.session.rollback()
    except Exception:  # an interrupted driver may raise anything
        db.session().invalidate()


def end_reading(response: Response) -> Response:
    """Commit a request that only read: a rollback would discard prepared statements."""
    is_read = request.method in ("GET", "HEAD") and response.status_code < 400
    if is_read and not (db.session.new or db.session.dirty or db.session.deleted):
        try:
            db.session.commit()
        except DBAPIError:
            safe_rollback()
    return response


# No request or job waits for ever on a lock, nor holds one while it does nothing.
_LIMITS = "SET {0} lock_timeout = '20s'; SET {0} idle_in_transaction_session_timeout = '60s'"


@event.listens_for(Engine, "connect")
def _bound_waiting(connection: Any, _record: Any) -> None:
    if connection.prepare_threshold is not None:
        with connection.cursor() as cursor:
            cursor.execute(_LIMITS.format("SESSION"))
        connection.commit()


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
    """Take row contents out of an error, in place: tracebacks print the original as its cause."""
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


_COPIED = "refine_copied_rows"


def copy_rows(table: Table, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Add rows to a table by COPY, the quickest way, in the transaction of ``db.session``."""
    types = [_binary_type(table.columns[column]) for column in columns]

    def write(copying: psycopg.Copy) -> None:
        copying.set_types(types)
        for row in rows:
            copying.write_row(row)

    copy(f"COPY {table.name} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)", write)


def copy(statement: str, use: Callable[[psycopg.Copy], None]) -> int:
    """Carry out a COPY, whose data ``use`` reads or writes; return the number of rows."""
    options = {_COPIED: use}
    return db.session.connection().exec_driver_sql(statement, execution_options=options).rowcount


def _binary_type(column: Column[Any]) -> str:
    type_ = Text() if isinstance(column.type, JSON) else column.type
    return type_.compile(db.engine.dialect).lower()


@event.listens_for(Engine, "do_execute")
def _copy(cursor: Any, statement: str, _parameters: Any, context: Any) -> bool:
    """Carry out ``copy``; any other statement is left to SQLAlchemy."""
    use = context.execution_options.get(_COPIED)
    if use is None:
        return False
    with cursor.copy(statement) as copying:
        use(copying)
    return True
