"""What a token may see: the rows of its agent, or of its account, in pages, newest first."""

import uuid
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, cast

from pydantic import Field
from sqlalchemy import Select, select

from refine import refusals
from refine.api.problems import Problem
from refine.api.schemas import Omittable, Query, Resource, integer_from_text
from refine.errors import InvalidValue
from refine.extensions import Base, db
from refine.models import Agent, ApiToken
from refine.models.paging import Page as Found, select_page

MAX_PAGE_ROWS = 200
DEFAULT_PAGE_ROWS = 50

Row = TypeVar("Row", bound=Base)


class PageQuery(Query):
    """Which page of a list."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_ROWS), integer_from_text] = DEFAULT_PAGE_ROWS
    cursor: Annotated[str, Field(min_length=1), Omittable]
    """The `next_cursor` of the previous page."""


class Page(Resource):
    """A page of a list; subclasses add one field, for the rows."""

    next_cursor: str | None
    """The `cursor` of the next page; null on the last page."""


AnyPage = TypeVar("AnyPage", bound=Page)


def page_of(
    page: type[AnyPage], rows: Select[Any], query: PageQuery, resource: Callable[..., Resource]
) -> AnyPage:
    """Return a page of an ordered query, a ``resource`` per row; InvalidValue for a bad cursor."""
    found = found_page(rows, query)
    (name,) = page.model_fields.keys() - {"next_cursor"}
    columns = len(rows.column_descriptions)
    fields: dict[str, Any] = {name: [resource(*row[:columns]) for row in found.rows]}
    return page(next_cursor=found.after, **fields)


def found_page(rows: Select[Any], query: PageQuery) -> Found:
    """Return the requested page of rows; InvalidValue for a bad cursor."""
    try:
        return select_page(rows, query.limit, query.cursor)
    except InvalidValue:
        raise InvalidValue("cursor must be a next_cursor of this list") from None


def rows_of_agent(agent: Agent, model: type[Row]) -> Select[Row]:
    return select(model).where(cast(Any, model).agent_id == agent.id)


def agent_row_or_404(agent: Agent, model: type[Row], id_: uuid.UUID | int, noun: str) -> Row:
    """Return the agent's own row with that id; Problem if it has no such ``noun``."""
    found: Any = db.session.get(model, id_)
    if found is None or (found.id, found.agent_id) != (id_, agent.id):
        refusals.note_other_tenant(found)
        raise Problem(404, f"You have no such {noun}.")
    return cast(Row, found)


def rows_of_account(token: ApiToken, model: type[Row]) -> Select[Row]:
    return select(model).where(cast(Any, model).account_id == token.account_id)


def account_row_or_404(token: ApiToken, model: type[Row], id_: int, noun: str) -> Row:
    """Return the account's row with that id; Problem if it has none, RowAltered if it was moved."""
    found: Any = db.session.get(model, id_, populate_existing=True)
    if found is None or (found.id, found.account_id) != (id_, token.account_id):
        refusals.note_other_tenant(found)
        raise Problem(404, f"The account has no such {noun}.")
    found.require_genuine()
    return cast(Row, found)
