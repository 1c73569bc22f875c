"""Rows that are copied into a table, as PostgreSQL takes them quickest."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import JSON, Column, Table, Text, event
from sqlalchemy.engine import Engine

from refine.extensions import db

_COPIED = "refine_copied_rows"


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
