"""A page of a list, as the URL asks for it."""

from typing import Any

from flask import abort, request
from sqlalchemy import Select

from refine.errors import InvalidValue
from refine.models.paging import OneOf, Page, select_page

PAGE_ROWS = 50


def page_of(query: Select[Any], *, one_of: OneOf | None = None) -> Page:
    """Return the page that the URL asks for, or 400; the query needs a unique order."""
    try:
        return select_page(query, PAGE_ROWS, request.args.get("page") or None, one_of)
    except InvalidValue:
        abort(400, "This page of the list does not exist; start from the first page.")
