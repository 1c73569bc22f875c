"""Statements that are built once and carried out by psycopg itself, and rows that are copied."""

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC
from functools import cache, wraps
from typing import Any, ParamSpec

from sqlalchemy import JSON, ClauseElement, Column, Result, SelectBase, Table, Text, event
from sqlalchemy.dialects.postgresql.psycopg import dialect
from sqlalchemy.engine import Dialect, Engine
from sqlalchemy.exc import CompileError

from refine.extensions import UtcDateTime, db

P = ParamSpec("P")

_COPIED = "refine_copied_rows"
_PLAIN = "refine_plain_rows"

_PSYCOPG: Dialect = dialect()  # type: ignore[no-untyped-call]


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
        self._constants: dict[str, Any] = {}
        types = {name: each.type for name, each in compiled.binds.items()}
        for name, expanded in full.parameter_expansion.items():
            types |= dict.fromkeys(expanded, types[name])
        for name, value in full.parameters.items():
            if value is None:
                continue
            try:  # no parameter, so that a plan for all values knows it
                constant = compiled.render_literal_value(value, types[name])
            except CompileError:  # the path to a part of a JSON value has no literal
                self._constants[name] = value
            else:
                self._text = self._text.replace(f"%({name})s", constant)

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


class PlainQuery(Plain):
    """A query of columns for psycopg itself: rows have the columns' names, and instants in UTC."""

    def __init__(self, query: SelectBase) -> None:
        super().__init__(query)
        columns = list(query.selected_columns)
        self._named = _named(*(str(each.key) for each in columns))
        self._instants = [
            place for place, each in enumerate(columns) if isinstance(each.type, UtcDateTime)
        ]

    def rows(self, **values: Any) -> list[Any]:
        """Return the rows; pending changes are written first."""
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


def plain_query(build: Callable[P, SelectBase]) -> Callable[P, PlainQuery]:
    """Build each form of a query once, to be read by psycopg itself."""

    @wraps(build)
    def built(*args: P.args, **kwargs: P.kwargs) -> PlainQuery:
        return PlainQuery(build(*args, **kwargs))

    return cache(built)  # type: ignore[return-value]  # arguments are hashable


def copy_rows(table: Table, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Add rows to a table by COPY, the quickest way, in the transaction of ``db.session``."""
    copying = f"COPY {table.name} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
    types = [_binary_type(table.columns[column]) for column in columns]
    db.session.connection().exec_driver_sql(copying, execution_options={_COPIED: (types, rows)})


def _binary_type(column: Column[Any]) -> str:
    """Return the type as which psycopg writes the column; JSON is written as its text."""
    type_ = Text() if isinstance(column.type, JSON) else column.type
    return type_.compile(db.engine.dialect).lower()


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
