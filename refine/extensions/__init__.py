"""The Flask extensions and the typed base of all models. Nothing connects at import."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from flask import Response, request
from flask_login import LoginManager
from flask_migrate import Migrate
from flask_sqlalchemy import SQLAlchemy
from flask_sqlalchemy.session import Session
from flask_wtf import CSRFProtect
from sqlalchemy import (
    ColumnElement,
    DateTime,
    MetaData,
    func,
    select,
    text,
    type_coerce,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, registry
from sqlalchemy.orm.exc import StaleDataError
from sqlalchemy.types import TypeDecorator

from refine.errors import ChangedMeanwhile, ClocksDiffer, InvalidValue
from refine.extensions.connections import CONNECT_ARGS

# By so much the clocks of servers may differ.
CLOCKS_DIFFER_BY = timedelta(seconds=30)


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


# made once: making it takes as long as a short text
_encoder = json.JSONEncoder(
    sort_keys=True,
    separators=(",", ":"),
    ensure_ascii=False,
    allow_nan=False,
    check_circular=False,
)


def canonical_json(value: Any) -> str:
    """Return the canonical text of a JSON value, to store and hash: no floats, sorted keys."""
    return _encoder.encode(value)


_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATETIME


def columns_json(values: Any) -> str:
    """Return ``canonical_json`` of values of columns, none of them a float, in less time.

    Only such values are allowed: orjson writes null for NaN and infinities.
    """
    try:
        return orjson.dumps(values, option=_SORTED).decode()
    except orjson.JSONEncodeError:  # half a character, or a collection that notes changes
        return canonical_json(values)


class _Session(Session):
    """A session whose flush says in our words that somebody else changed a row first."""

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
        # the same few connections, which have prepared what is asked often
        "pool_use_lifo": True,
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


def later_now() -> datetime:
    """Return the later of the database's time and this process's: something is barred from then on.

    So a clock that was set back does not shorten that.
    """
    return max(database_now(), datetime.now(UTC))


def agreed_now() -> datetime:
    """Return ``database_now``, for what decides who may read or ask.

    ClocksDiffer if this process's clock shows another time: one of them is wrong, or somebody put a
    clock of their own in the way of PostgreSQL's.
    """
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
    """Tell whether the database takes no writes from us, as a replica."""
    return bool(db.session.scalar(text("SHOW transaction_read_only")) == "on")


def safe_rollback() -> None:
    """Roll back, even if the connection was lost in the middle of a statement."""
    try:
        db.session.rollback()
    except Exception:  # whatever an interrupted driver raises
        db.session().invalidate()


def end_reading(response: Response) -> Response:
    """End the transaction of a request that only read, and succeeded, with a commit.

    A rollback would discard its connection's prepared statements: each would be planned again. A
    database that is gone by now does not matter, because everything was read.
    """
    is_read = request.method in ("GET", "HEAD") and response.status_code < 400
    if is_read and not (db.session.new or db.session.dirty or db.session.deleted):
        try:
            db.session.commit()
        except DBAPIError:
            safe_rollback()
    return response
