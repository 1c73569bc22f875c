"""A page of a list, as the URL asks for it."""

from collections.abc import Mapping
from typing import Any

from flask import abort, request
from sqlalchemy import Select

from refine.errors import InvalidValue
from refine.models.paging import OneOf, Page, select_page

PAGE_ROWS = 50


def page_of(
    query: Select[Any], *, one_of: OneOf | None = None, values: Mapping[str, Any] | None = None
) -> Page:
    """Return the page that the URL asks for, or 400; the query needs a unique order."""
    bookmark = request.args.get("page") or None
    try:
        return select_page(query, PAGE_ROWS, bookmark, one_of=one_of, values=values)
    except InvalidValue:
        abort(400, "This page of the list does not exist; start from the first page.")
