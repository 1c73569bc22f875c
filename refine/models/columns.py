"""Column types that the models share."""

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, Protocol, Self, TypeVar, cast, overload

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Identity,
    LargeBinary,
    Numeric,
    Select,
    Sequence,
    SQLColumnExpression,
    Text,
    any_,
    false,
    func,
    inspect,
    literal,
    literal_column,
    select,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import mapped_column

from refine import clock
from refine.errors import InvalidValue
from refine.extensions import db
from refine.sealing import DataKey, Place

T = TypeVar("T", bound=str | None)

# An account, or (None) all of them.
AccountId = int | None

# A digest before and after a change; None where there was or is none.
DigestChange = tuple[str | None, str | None]

BigId = Annotated[int, mapped_column(BigInteger, Identity(), primary_key=True)]
Uuid = Annotated[
    uuid.UUID,
    mapped_column(primary_key=True, default=uuid.uuid4, server_default=text("gen_random_uuid()")),
]
Name = Annotated[str, mapped_column(Text)]
Created = Annotated[datetime, mapped_column(default=clock.now, server_default=text("now()"))]
Updated = Annotated[
    datetime, mapped_column(default=clock.now, onupdate=clock.now, server_default=text("now()"))
]
BoolFalse = Annotated[bool, mapped_column(default=False, server_default=false())]
BoolTrue = Annotated[bool, mapped_column(default=True, server_default=true())]
Count = Annotated[int, mapped_column(default=0, server_default=text("0"))]
USD_DECIMALS = 6
Usd = Annotated[Decimal, mapped_column(Numeric(12, USD_DECIMALS))]
Sealed = Annotated[bytes, mapped_column(LargeBinary)]


class KeyHolder(Protocol):
    """A row whose texts are sealed under one data key."""

    @property
    def id(self) -> Any: ...
    def data_key(self) -> DataKey:
        """Return the opened key; SealingError where it was destroyed."""


def row_id(row: Any, connection: Connection | None = None) -> Any:
    """Return the id of a row; a new row is given its own now.

    What is sealed, and every digest, is bound to it, so it must be known before the row is written.
    """
    if row.id is None:
        default = inspect(type(row)).attrs["id"].columns[0].default
        if default is not None and default.is_callable:
            row.id = default.arg(None)
        else:
            ids = Sequence(f"{row.__tablename__}_id_seq")
            row.id = (connection or db.session.connection()).scalar(select(ids.next_value()))
    return row.id


def next_ids(ids: Sequence, count: int) -> Select[Any]:
    """Return a query for that many new ids of a sequence, in order; NULL for none."""
    return select(func.array_agg(ids.next_value())).select_from(func.generate_series(1, count))


def constant(name: str) -> ColumnElement[str]:
    """Return a name as a part of a statement, and not as a parameter.

    PostgreSQL may then use a partial index in a plan that it keeps; otherwise it would make a new
    plan each time. Only for names that the code itself gives.
    """
    return literal_column(f"'{name}'", Text)


def one_of_constants(column: SQLColumnExpression[str], names: Iterable[str]) -> ColumnElement[bool]:
    """Return the SQL condition that a column is one of these names; see ``constant``."""
    return column.in_([constant(name) for name in names])


def one_of_ids(ids: Iterable[int]) -> Any:
    """Return what a column of ids is compared with to be one of these, however many."""
    return any_(literal(list(ids), ARRAY(BigInteger)))


def one_of_names(names: Iterable[str]) -> Any:
    """Return what a column is compared with to be one of these hashes, or names without commas."""
    return any_(func.string_to_array(",".join(names), ","))


def place_of(row: Any, column: str) -> Place:
    """Return the place to which what is sealed in this column of the row is bound."""
    return Place(f"{row.__tablename__}.{column}", row_id(row))


class SealedText(Generic[T]):
    """A text attribute, stored encrypted in the column attribute ``sealed_<name>``.

    The column itself must be called like the text: what is sealed is bound to that name.

    ``valid`` normalises a text before it is stored, or raises InvalidValue. Setting the same text
    again keeps the stored bytes.
    """

    def __init__(self, valid: Callable[[str, object], T]) -> None:
        self._valid: Callable[[str, object], T] = valid

    def __set_name__(self, owner: Any, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: Any) -> Self: ...
    @overload
    def __get__(self, instance: KeyHolder, owner: Any) -> T: ...
    def __get__(self, instance: KeyHolder | None, owner: Any) -> Self | T:
        return self if instance is None else cast(T, self._open(instance))

    def __set__(self, instance: KeyHolder, value: object) -> None:
        text = self._valid(self._name, value)
        if text != self._open(instance):
            self._seal(instance, text)

    def _open(self, instance: KeyHolder) -> str | None:
        sealed = getattr(instance, f"sealed_{self._name}")
        if sealed is None:
            return None
        return instance.data_key().open(sealed, place_of(instance, self._name))

    def _seal(self, instance: KeyHolder, text: str | None) -> None:
        sealed = None
        if text is not None:
            sealed = instance.data_key().seal(text, place_of(instance, self._name))
        setattr(instance, f"sealed_{self._name}", sealed)


# -- changes of settings, as records keep them ---------------------------------------------------

Changes = dict[str, list[Any]]


def require_allowed(fields: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Raise InvalidValue if one of the fields is not among those that may be set this way."""
    if forbidden := [field for field in fields if field not in allowed]:
        raise InvalidValue(f"{forbidden[0]} cannot be set here")


def set_fields(row: object, fields: Mapping[str, Any]) -> Changes:
    """Set the fields of the row; return those that changed, each as [before, after].

    Fractional numbers are given as text, because records hold no floats.
    """
    before = {field: getattr(row, field) for field in fields}
    for field, value in fields.items():
        setattr(row, field, value)
    after = {field: getattr(row, field) for field in fields}
    return {
        field: [_as_text(before[field]), _as_text(after[field])]
        for field in fields
        if before[field] != after[field]
    }


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, float | Decimal) else value
