"""The Flask extensions and the typed base of all models. Nothing connects at import."""

import json
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, wraps
from typing import Any, ParamSpec

from flask import Response, request
from flask_login import LoginManager
from flask_migrate import Migrate
from flask_sqlalchemy import SQLAlchemy
from flask_wtf import CSRFProtect
from sqlalchemy import (
    JSON,
    BindParameter,
    ClauseElement,
    Column,
    ColumnElement,
    Connection,
    DateTime,
    MetaData,
    Result,
    SelectBase,
    Table,
    Text,
    bindparam,
    event,
    func,
    select,
    text,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.engine import Dialect, Engine, ExceptionContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, registry
from sqlalchemy.types import TypeDecorator

from refine.errors import InvalidValue

P = ParamSpec("P")

_COPIED = "refine_copied_rows"
_PLAIN = "refine_plain_rows"


class UtcDateTime(TypeDecorator[datetime]):
    """An instant: aware going in, UTC coming out."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise InvalidValue("a time without time zone cannot be stored; use aware times")
        return value.astimezone(UTC) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value.astimezone(UTC) if value is not None else None


def read_plainly(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return a column to be read in bulk: instants stay in the time zone of the connection."""
    is_instant = isinstance(column.type, UtcDateTime)
    return type_coerce(column, DateTime(timezone=True)) if is_instant else column


# In a statement that is built once, an instant is a parameter.
Instant = datetime | ColumnElement[datetime]


def instant(name: str) -> BindParameter[datetime]:
    """Return a parameter for a statement that is built once: an instant, which may be shifted."""
    return bindparam(name, type_=DateTime(timezone=True))


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


# made once: making it takes as long as a short text
_encoder = json.JSONEncoder(
    sort_keys=True,
    separators=(",", ":"),
    ensure_ascii=False,
    allow_nan=False,
    check_circular=False,
)


def canonical_json(value: Any) -> str:
    """Return the one spelling of a JSON value that is stored and hashed: no floats, sorted keys."""
    return _encoder.encode(value)


# A server that vanished without a word is given up in time for a run to outlive it: libpq would
# wait for a quarter of an hour.
CONNECT_ARGS = {
    "connect_timeout": 10,
    "tcp_user_timeout": 15_000,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
}
# A pooler in transaction mode gives each transaction another connection to the server.
POOLED_CONNECT_ARGS = {**CONNECT_ARGS, "prepare_threshold": None}

db = SQLAlchemy(
    model_class=Base,
    engine_options={
        "hide_parameters": True,
        "pool_pre_ping": True,
        "json_serializer": canonical_json,
        "connect_args": CONNECT_ARGS,
    },
)
migrate = Migrate()
login = LoginManager()
csrf = CSRFProtect()


def database_now() -> datetime:
    """Return the current instant by the database's clock, which is the same for every process."""
    return db.session.execute(select(func.clock_timestamp(type_=UtcDateTime()))).scalar_one()


def is_read_only() -> bool:
    """Tell whether the database takes no writes from us, as a replica."""
    return bool(db.session.scalar(text("SHOW transaction_read_only")) == "on")


def copy_rows(table: Table, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Add rows to a table by COPY, the quickest way, in the transaction of ``db.session``."""
    copying = f"COPY {table.name} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
    types = [_binary_type(table.columns[column]) for column in columns]
    db.session.connection().exec_driver_sql(copying, execution_options={_COPIED: (types, rows)})


def _binary_type(column: Column[Any]) -> str:
    """Return the type as which psycopg writes the column; JSON is written as it is spelled."""
    type_ = Text() if isinstance(column.type, JSON) else column.type
    return type_.compile(db.engine.dialect).lower()


_PSYCOPG: Dialect = psycopg.dialect()  # type: ignore[no-untyped-call]


class Plain:
    """A statement for psycopg itself, which takes half as long: compiled once, prepared at once.

    Values and rows are those of psycopg: JSON goes in as text, and instants come out in the time
    zone of the connection.
    """

    def __init__(self, statement: ClauseElement) -> None:
        compiled: Any = statement.compile(dialect=_PSYCOPG)
        later = {name: None for name, each in compiled.binds.items() if each.required}
        full = compiled.construct_expanded_state(later)
        self._text: str = full.statement
        self._constants = {name: each for name, each in full.parameters.items() if each is not None}

    def execute(self, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Carry it out in the transaction of ``db.session``; return its rows."""
        rows = list[tuple[Any, ...]]()
        db.session.connection().exec_driver_sql(
            self._text, {**self._constants, **values}, execution_options={_PLAIN: rows}
        )
        return rows


@cache
def _named(*names: str) -> Callable[[Iterable[Any]], Any]:
    """Return what makes a row with these names of its cells."""
    of_names: Any = namedtuple  # noqa: PYI024 - they are those of any query
    make: Callable[[Iterable[Any]], Any] = of_names("Row", names, rename=True)._make
    return make


def named_rows(result: Result[*tuple[Any, ...]]) -> list[Any]:
    """Return the rows of a result as named tuples.

    Templates read many cells, and asking a row of SQLAlchemy for one takes ten times as long.
    """
    return list(map(_named(*result.keys()), result))


class Reading(Plain):
    """A query of columns for psycopg itself: rows have the columns' names, and instants in UTC."""

    def __init__(self, query: SelectBase) -> None:
        super().__init__(query)
        columns = list(query.selected_columns)
        self._named = _named(*(str(each.key) for each in columns))
        self._instants = [
            place for place, each in enumerate(columns) if isinstance(each.type, UtcDateTime)
        ]

    def rows(self, **values: Any) -> list[Any]:
        """Return the rows, once what was changed is written."""
        db.session.flush()
        found: Iterable[Sequence[Any]] = self.execute(values)
        if self._instants:
            found = map(self._in_utc, found)
        return list(map(self._named, found))

    def _in_utc(self, row: Sequence[Any]) -> list[Any]:
        cells = list(row)
        for place in self._instants:
            if cells[place] is not None:
                cells[place] = cells[place].astimezone(UTC)
        return cells


def reading(build: Callable[P, SelectBase]) -> Callable[P, Reading]:
    """Build each form of a query once, to be read by psycopg itself."""

    @wraps(build)
    def built(*args: P.args, **kwargs: P.kwargs) -> Reading:
        return Reading(build(*args, **kwargs))

    return cache(built)  # type: ignore[return-value]  # arguments are hashable


def safe_rollback() -> None:
    """Roll back, even if the connection was lost in the middle of a statement."""
    try:
        db.session.rollback()
    except Exception:  # whatever a driver raises that was interrupted halfway
        db.session().invalidate()


def end_reading(response: Response) -> Response:
    """End the transaction of a request that only read, and succeeded, with a commit.

    A rollback would discard what its connection has prepared: each statement would be planned anew.
    """
    is_read = request.method in ("GET", "HEAD") and response.status_code < 400
    if is_read and not (db.session.new or db.session.dirty or db.session.deleted):
        db.session.expunge_all()  # quicker than to expire each object, which the commit would do
        db.session.commit()
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


@event.listens_for(Engine, "do_execute")
def _execute_plainly(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
    """Carry out a ``Plain`` statement; any other is left to SQLAlchemy."""
    rows = context.execution_options.get(_PLAIN)
    if rows is None:
        return False
    # a cursor of its own: SQLAlchemy would describe each column of the result
    with cursor.connection.cursor() as plain:
        plain.execute(statement, parameters, prepare=True)
        if plain.rownumber is not None:  # there is a result
            rows.extend(plain.fetchall())
    return True


@event.listens_for(Engine, "do_execute")
def _copy(cursor: Any, statement: str, _parameters: Any, context: Any) -> bool:
    """Carry out ``copy_rows``; any other statement is left to SQLAlchemy."""
    copied = context.execution_options.get(_COPIED)
    if copied is None:
        return False
    types, rows = copied
    with cursor.copy(statement) as copying:
        copying.set_types(types)
        for row in rows:
            copying.write_row(row)
    return True


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
