"""Usage and cost of the account's agents."""

from datetime import date, datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from flask import Response
from pydantic import Field
from sqlalchemy import select

from refine.api.paging import Page, PageQuery, found_page
from refine.api.routing import ResponseSpec, json_response, operation
from refine.api.schemas import QueryDay, Resource, Usd
from refine.models import Account, Agent, ApiToken
from refine.models.runs.usage import by_month


class UsageQuery(PageQuery):
    """Which agents, and which days, in the account's time zone."""

    since: Annotated[QueryDay | None, Field(alias="from")] = None
    """The first day, inclusive."""
    until: Annotated[QueryDay | None, Field(alias="to")] = None
    """The last day, exclusive."""


class UsageOfMonth(Resource):
    """One agent's usage in one month; tokens and cost include all kinds of runs."""

    month: Annotated[str, Field(examples=["2026-11"])]
    agent_id: int
    agent: str
    sessions: int
    """Refinement sessions requested in that month, regardless of outcome."""
    reflections: int
    conversations: int
    """Conversations handed over in that month."""
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_usd: Usd
    unpriced_calls: int
    """Calls of models whose cost is unknown, and not part of `cost_usd`."""


class Usage(Page):
    """Usage of as many agents as `limit` says, by month, then by agent."""

    time_zone: str
    """The account's time zone, in which months are counted."""
    usage: list[UsageOfMonth]


@operation(
    "GET",
    "/usage",
    bearer="platform",
    responses={200: ResponseSpec("Usage by month, then by agent.", Usage)},
)
def usage(token: ApiToken, query: UsageQuery) -> Response:
    """Return sessions, reflections and conversations with their cost, by agent and month."""
    account = token.account
    since, until = _midnight(account, query.since), _midnight(account, query.until)
    newest_first = select(Agent.id).where(Agent.account_id == account.id).order_by(Agent.id.desc())
    agents = found_page(newest_first, query)
    months = by_month(account, [row.id for row in agents.rows], since=since, until=until)
    usage = [UsageOfMonth.of(month) for month in months]
    return json_response(Usage(time_zone=account.time_zone, usage=usage, next_cursor=agents.after))


def _midnight(account: Account, day: date | None) -> datetime | None:
    if day is None:
        return None
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(account.time_zone))
