"""Column types that the models share, and what rows are found by."""

import re
import uuid
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Identity,
    Index,
    LargeBinary,
    Numeric,
    SQLColumnExpression,
    Text,
    any_,
    false,
    func,
    literal,
    literal_column,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import mapped_column

from refine import clock
from refine.errors import InvalidValue

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

# As people write ids: every number of so many digits fits into a bigint.
_MAX_ID_DIGITS = 18
MAX_ID = 10**_MAX_ID_DIGITS - 1
ID = re.compile(rf"[0-9]{{1,{_MAX_ID_DIGITS}}}")


def index(table: str, *columns: str, where: str | None = None) -> Index:
    """Return an index, named for its columns but ``id``, of all rows or those that SQL matches."""
    name = "_".join(["ix", table, *(column for column in columns if column != "id")])
    return Index(name, *columns, postgresql_where=None if where is None else text(where))


def constant(name: str) -> ColumnElement[str]:
    """Return a name as SQL text, not a parameter, so that kept plans can use partial indexes."""
    return literal_column(f"'{name}'", Text)


def in_constants(column: SQLColumnExpression[str], names: Iterable[str]) -> ColumnElement[bool]:
    """Return ``column IN (names)``; see ``constant``."""
    return column.in_([constant(name) for name in names])


def in_ids(column: SQLColumnExpression[Any], ids: Iterable[int]) -> ColumnElement[bool]:
    """Return ``column = ANY(ids)``: one parameter, however many ids."""
    return column == any_(literal(list(ids), ARRAY(BigInteger)))


def in_names(column: SQLColumnExpression[Any], names: Iterable[str]) -> ColumnElement[bool]:
    """Return ``column = ANY(names)``: one parameter; the names contain no commas."""
    return column == any_(func.string_to_array(",".join(names), ","))


def id_in(text: str) -> int | None:
    """Return ``text`` as an id; None if no row can have it."""
    return int(text) if ID.fullmatch(text) else None


# -- changes of settings, as records keep them ---------------------------------------------------

Changes = dict[str, list[Any]]


def require_allowed(fields: Mapping[str, Any], allowed: Collection[str]) -> None:
    if forbidden := [field for field in fields if field not in allowed]:
        raise InvalidValue(f"{forbidden[0]} cannot be set here")


def set_fields(row: object, fields: Mapping[str, Any]) -> Changes:
    """Set fields; return the changed ones as [before, after], fractions as text."""
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
