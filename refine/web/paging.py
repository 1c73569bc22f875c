"""A page of a list, as the URL asks for it."""

from typing import Any

from flask import abort, request
from sqlalchemy import Select

from refine.errors import InvalidValue
from refine.models.paging import OneOf, Page, select_page

PAGE_ROWS = 50


def page_of(
    query: Select[Any], *, rows: int = PAGE_ROWS, name: str = "page", one_of: OneOf | None = None
) -> Page:
    """Return the page that the URL's ``name`` asks for, or 400; the query needs a unique order."""
    try:
        return select_page(query, rows, request.args.get(name) or None, one_of)
    except InvalidValue:
        abort(400, "This page of the list does not exist; start from the first page.")
