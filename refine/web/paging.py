"""Keyset pagination: page 1,000 of a list is as fast as the first."""

from dataclasses import dataclass
from typing import Any

from flask import abort, request
from sqlakeyset import BadBookmark, InvalidPage, select_page
from sqlalchemy import Select
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from refine.extensions import db

PAGE_ROWS = 50


@dataclass(frozen=True)
class Page:
    """Rows of a list, and the bookmarks of the previous and next page, if any."""

    rows: list[Any]
    before: str | None
    after: str | None


def page_of(query: Select[Any], *, rows: int = PAGE_ROWS, name: str = "page") -> Page:
    """Return the page that the URL's ``name`` asks for, or 400; the query needs a unique order."""
    bookmark = request.args.get(name) or None
    try:
        found = select_page(db.session(), query, per_page=rows, page=bookmark)
    except (InvalidPage, BadBookmark, ValueError, SQLAlchemyError) as error:
        if bookmark is None or isinstance(error, OperationalError):
            raise
        db.session.rollback()
        abort(400, "This page of the list does not exist; start from the first page.")
    paging = found.paging
    return Page(
        rows=list(found),
        before=paging.bookmark_previous if paging.has_previous else None,
        after=paging.bookmark_next if paging.has_next else None,
    )
