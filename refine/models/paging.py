"""Keyset pagination: page 1,000 of a list is as fast as the first. Bookmarks are not secret."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Select,
    Text,
    UnaryExpression,
    func,
    literal,
    literal_column,
    select,
    true,
    tuple_,
)
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.sql.operators import desc_op

from refine.errors import InvalidValue
from refine.extensions import db

# How values are read from a bookmark that their type does not read itself.
_READERS: Mapping[type, Callable[[str], Any]] = {
    datetime: datetime.fromisoformat,
    object: str,  # of functions without a type, such as lower()
}


@dataclass(frozen=True)
class Page:
    """Rows of a list, and the bookmarks of the previous and next page, if any."""

    rows: list[Any]
    before: str | None
    after: str | None


@dataclass(frozen=True)
class OneOf:
    """A column's values, each read in order from an index that begins with the column."""

    column: Any
    values: Collection[str]


class _Key:
    def __init__(self, clause: ColumnElement[Any], position: int, *, backwards: bool) -> None:
        is_sorted = isinstance(clause, UnaryExpression) and clause.modifier is not None
        self.column: ColumnElement[Any] = clause.element if is_sorted else clause
        self.is_descending = (is_sorted and clause.modifier is desc_op) != backwards
        self.name = f"sorted_by_{position}"

    def sort(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return column.desc() if self.is_descending else column.asc()

    def read(self, text: str) -> ColumnElement[Any]:
        kind = self.column.type.python_type
        return literal(_READERS.get(kind, kind)(unquote(text)), self.column.type)


def select_page(
    query: Select[Any],
    rows: int,
    bookmark: str | None,
    *,
    one_of: OneOf | None = None,
) -> Page:
    """Return the bookmark's page, or InvalidValue; the query needs a unique order without NULLs."""
    backwards = bookmark is not None and bookmark.startswith("<")
    clauses = enumerate(query._order_by_clauses)
    keys = [_Key(clause, position, backwards=backwards) for position, clause in clauses]
    first = query.add_columns(*(key.column.label(key.name) for key in keys))
    first = first.order_by(None).order_by(*(key.sort(key.column) for key in keys)).limit(rows + 1)
    try:
        if bookmark is not None:
            first = first.where(_lies_beyond(bookmark, keys))
        if one_of is not None:
            first = _first_of_all(first, one_of, keys, rows + 1)
        found = list(db.session.execute(first))
    except (ValueError, ArithmeticError, SQLAlchemyError) as error:
        if bookmark is None or isinstance(error, OperationalError):
            raise
        db.session.rollback()
        raise InvalidValue("invalid page") from None
    shown, has_more = found[:rows], len(found) > rows
    if backwards:
        shown.reverse()
    has_before, has_after = (has_more, True) if backwards else (bookmark is not None, has_more)
    return Page(
        shown,
        before="<" + _place(shown[0], keys) if shown and has_before else None,
        after=">" + _place(shown[-1], keys) if shown and has_after else None,
    )


def _lies_beyond(bookmark: str, keys: list[_Key]) -> ColumnElement[bool]:
    if bookmark[:1] not in ("<", ">"):
        raise ValueError("not a bookmark")
    less, greater = [], []
    for key, text in zip(keys, bookmark[1:].split(","), strict=True):
        place = key.read(text)
        less.append(key.column if key.is_descending else place)
        greater.append(place if key.is_descending else key.column)
    return tuple_(*less) < tuple_(*greater)


def _place(row: Any, keys: list[_Key]) -> str:
    return ",".join(quote(str(getattr(row, key.name)), safe="") for key in keys)


def _first_of_all(first: Select[Any], one_of: OneOf, keys: list[_Key], rows: int) -> Select[Any]:
    values = literal(list(one_of.values), ARRAY(Text))
    each = func.unnest(values).table_valued("value").render_derived()
    of_each = first.where(one_of.column == each.c.value).correlate(each).lateral("of_each")
    # by name, because a proxy of each column takes longer to make than the page to read
    named = {
        name: literal_column(f'of_each."{name}"', column.type).label(name)
        for name, column in first.selected_columns.items()
    }
    together = select(*named.values()).select_from(each).join(of_each, true())
    return together.order_by(*(key.sort(named[key.name]) for key in keys)).limit(rows)
