"""Keyset pagination: page 1,000 of a list is as fast as the first.

A page is named by the place before or after which it lies: the values that its neighbouring row is
sorted by. Clients send them back as text. They are not secret: another value only moves the place.
"""

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
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

# What values rows are sorted by, and how each kind is read from a bookmark.
_KINDS: dict[type, str] = {
    int: "i",
    str: "s",
    float: "f",
    Decimal: "d",
    datetime: "t",
    uuid.UUID: "u",
}
_READERS: dict[str, Callable[[str], Any]] = {
    "i": int,
    "s": str,
    "f": float,
    "d": Decimal,
    "t": datetime.fromisoformat,
    "u": uuid.UUID,
}


@dataclass(frozen=True)
class Page:
    """Rows of a list, and the bookmarks of the previous and next page, if any."""

    rows: list[Any]
    before: str | None
    after: str | None


class _Key:
    """What rows are sorted by, in part."""

    def __init__(self, clause: ColumnElement[Any], position: int) -> None:
        is_sorted = isinstance(clause, UnaryExpression) and clause.modifier is not None
        self.is_descending = is_sorted and clause.modifier is desc_op
        self.column: ColumnElement[Any] = clause.element if is_sorted else clause
        self.name = f"sorted_by_{position}"

    def in_order(self, *, backwards: bool) -> ColumnElement[Any]:
        is_descending = self.is_descending != backwards
        return self.column.desc() if is_descending else self.column.asc()

    def sides(
        self, value: Any, *, backwards: bool
    ) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
        """Return what must be the less and the greater of: the place, and a row beyond it."""
        place: ColumnElement[Any] = literal(value, self.column.type)
        is_descending = self.is_descending != backwards
        return (self.column, place) if is_descending else (place, self.column)


@dataclass(frozen=True)
class OneOf:
    """That a column has one of these values; not part of a query, but given to ``select_page``.

    The page is then taken from the first rows of each value. These are read in order from an index
    that begins with the column; otherwise the database would read all of their rows.
    """

    column: Any
    values: Collection[str]


def select_page(
    query: Select[Any],
    rows: int,
    bookmark: str | None,
    *,
    one_of: OneOf | None = None,
) -> Page:
    """Return the page of this bookmark, or the first one; InvalidValue if it fits no page.

    The query needs a unique order, by columns that are never NULL.
    """
    keys = [_Key(clause, number) for number, clause in enumerate(query._order_by_clauses)]
    try:
        place, backwards = _read(bookmark) if bookmark is not None else (None, False)
        ordered = query.order_by(None).order_by(*(k.in_order(backwards=backwards) for k in keys))
        if place is not None:
            sides = [
                key.sides(value, backwards=backwards)
                for key, value in zip(keys, place, strict=True)
            ]
            less, greater = zip(*sides, strict=True)
            ordered = ordered.where(tuple_(*less) < tuple_(*greater))
        named = ordered.add_columns(*(key.column.label(key.name) for key in keys))
        first = named.limit(rows + 1)
        if one_of is not None:
            first = _first_of_all(first, one_of, keys, rows + 1, backwards=backwards)
        found = db.session.execute(first).all()
    except (ValueError, ArithmeticError, SQLAlchemyError) as error:
        if bookmark is None or isinstance(error, OperationalError):
            raise
        db.session.rollback()
        raise InvalidValue("invalid page") from None
    return _page(found, rows, keys, is_first=place is None, backwards=backwards)


def _first_of_all(
    first: Select[Any], one_of: OneOf, keys: list[_Key], rows: int, *, backwards: bool
) -> Select[Any]:
    """Return the first rows of all values, from the ``first`` rows of each."""
    values = literal(list(one_of.values), ARRAY(Text))
    each = func.unnest(values).table_valued("value").render_derived()
    of_each = first.where(one_of.column == each.c.value).correlate(each).lateral("of_each")
    # by name, because a proxy of each column takes longer to make than the page to read
    named = {
        name: literal_column(f'of_each."{name}"', column.type).label(name)
        for name, column in first.selected_columns.items()
    }
    sorted_by = [(named[key.name], key.is_descending != backwards) for key in keys]
    in_order = (column.desc() if down else column.asc() for column, down in sorted_by)
    together = select(*named.values()).select_from(each).join(of_each, true())
    return together.order_by(*in_order).limit(rows)


def _page(
    found: Sequence[Any], rows: int, keys: list[_Key], *, is_first: bool, backwards: bool
) -> Page:
    shown, goes_on = list(found[:rows]), len(found) > rows
    if backwards:
        shown.reverse()
    has_before, has_after = (goes_on, True) if backwards else (not is_first, goes_on)

    def beside(row: Any, sign: str) -> str:
        return sign + ",".join(_written(getattr(row, key.name)) for key in keys)

    return Page(
        shown,
        before=beside(shown[0], "<") if shown and has_before else None,
        after=beside(shown[-1], ">") if shown and has_after else None,
    )


def _written(value: Any) -> str:
    return _KINDS[type(value)] + quote(str(value), safe="")


def _read(bookmark: str) -> tuple[list[Any], bool]:
    """Return the place that a bookmark names, and whether the page lies before it."""
    sign, values = bookmark[:1], bookmark[1:].split(",")
    if sign not in ("<", ">") or any(each[:1] not in _READERS for each in values):
        raise ValueError("not a bookmark")
    return [_READERS[each[:1]](unquote(each[1:])) for each in values], sign == "<"
