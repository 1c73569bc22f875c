"""Cursor pagination of long lists, newest first."""

from collections.abc import Callable
from typing import Annotated, Any

from flask import Response
from pydantic import Field
from sqlalchemy import Select

from refine.api.routing import json_response
from refine.api.schemas import Query, Resource, integer_from_text
from refine.errors import InvalidValue
from refine.models.paging import Page as Found
from refine.models.paging import select_page

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
    found = found_page(rows, query)
    (name,) = page.model_fields.keys() - {"next_cursor"}
    columns = len(rows.column_descriptions)
    resources = [resource(*row[:columns]) for row in found.rows]
    fields: dict[str, Any] = {name: resources, "next_cursor": found.after}
    return json_response(page(**fields))


def found_page(rows: Select[Any], query: PageQuery) -> Found:
    """Return the rows that a query asks for; InvalidValue for a cursor of no page."""
    try:
        return select_page(rows, query.limit, query.cursor)
    except InvalidValue:
        raise InvalidValue("cursor must be a next_cursor of this list") from None
