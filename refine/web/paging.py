"""Long lists, a page at a time, by the last row shown: as fast on page 1,000 as on the first."""

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
    """Some rows of a list, and the bookmarks of the pages before and after, where there are any."""

    rows: list[Any]
    before: str | None
    after: str | None

    @property
    def is_first(self) -> bool:
        """Whether no row comes before."""
        return self.before is None


def page_of(query: Select[Any], *, rows: int = PAGE_ROWS, name: str = "page") -> Page:
    """Return the page that the URL's ``name`` asks for; the query must be ordered, uniquely.

    A bookmark that fits no column of the order shows when the database is asked.
    """
    bookmark = request.args.get(name) or None
    try:
        found = select_page(db.session(), query, per_page=rows, page=bookmark)
    except (InvalidPage, BadBookmark, ValueError, SQLAlchemyError) as error:
        if bookmark is None or isinstance(error, OperationalError):
            raise
        db.session.rollback()
        abort(400, "This page of the list does not exist; begin with the first.")
    paging = found.paging
    return Page(
        rows=list(found),
        before=paging.bookmark_previous if paging.has_previous else None,
        after=paging.bookmark_next if paging.has_next else None,
    )
