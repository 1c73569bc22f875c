"""Long lists, newest first, a page at a time, by a cursor that says where the last one ended."""

import csv
from collections.abc import Callable
from typing import Any

from sqlakeyset import BadBookmark, InvalidPage, select_page
from sqlalchemy import Select
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from refine.api.checking import Schema
from refine.api.problems import Problem, safe_rollback
from refine.api.schemas import DEFAULT_PAGE_ROWS, MAX_PAGE_ROWS
from refine.extensions import db

PAGED: dict[str, Schema] = {
    "limit": {
        "type": "integer",
        "minimum": 1,
        "maximum": MAX_PAGE_ROWS,
        "default": DEFAULT_PAGE_ROWS,
    },
    "cursor": {
        "type": "string",
        "minLength": 1,
        "description": "`next_cursor` of the page before.",
    },
}


def page_of(
    query: Select[Any], asked: dict[str, Any], name: str, shown: Callable[..., dict[str, Any]]
) -> dict[str, Any]:
    """Return the page of an ordered query that was asked for, each row as ``shown`` makes it.

    A cursor that fits no column of the order shows when the database is asked.
    """
    cursor = asked.get("cursor")
    try:
        found = select_page(db.session(), query, per_page=asked["limit"], page=cursor)
    except (InvalidPage, BadBookmark, csv.Error, ValueError, SQLAlchemyError) as error:
        if cursor is None or isinstance(error, OperationalError):
            raise
        safe_rollback()
        said = "cursor must be a next_cursor of this list"
        raise Problem.invalid([("cursor", said)]) from None
    paging = found.paging
    return {
        name: [shown(*row) for row in found],
        "next_cursor": paging.bookmark_next if paging.has_next else None,
    }
