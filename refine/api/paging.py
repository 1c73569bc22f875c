"""Cursor pagination of long lists, newest first."""

import csv
from collections.abc import Callable
from typing import Annotated, Any

from flask import Response
from pydantic import Field
from sqlakeyset import BadBookmark, InvalidPage, select_page
from sqlalchemy import Select
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from refine.api.routing import json_response
from refine.api.schemas import Query, Resource, integer_from_text
from refine.errors import InvalidValue
from refine.extensions import db

MAX_PAGE_ROWS = 200
DEFAULT_PAGE_ROWS = 50


class PageQuery(Query):
    """Which page of a list."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_ROWS), integer_from_text] = DEFAULT_PAGE_ROWS
    cursor: Annotated[str, Field(min_length=1)] | None = None
    """The `next_cursor` of the previous page."""


class Page(Resource):
    """A page of a list; subclasses add one field, for the rows."""

    next_cursor: str | None
    """The `cursor` of the next page; null on the last page."""


def page_response(
    page: type[Page], rows: Select[Any], query: PageQuery, resource: Callable[..., Resource]
) -> Response:
    """Return a page of an ordered query, a ``resource`` for each row; InvalidValue for a cursor."""
    try:
        found = select_page(db.session(), rows, per_page=query.limit, page=query.cursor)
    except (InvalidPage, BadBookmark, csv.Error, ValueError, SQLAlchemyError) as error:
        if query.cursor is None or isinstance(error, OperationalError):
            raise
        raise InvalidValue("cursor must be a next_cursor of this list") from None
    (name,) = page.model_fields.keys() - {"next_cursor"}
    next_cursor = found.paging.bookmark_next if found.paging.has_next else None
    fields: dict[str, Any] = {name: [resource(*row) for row in found], "next_cursor": next_cursor}
    return json_response(page(**fields))
