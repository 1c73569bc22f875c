"""What the account's agents cost."""

from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from flask import Response

from refine.api.routing import Answer, given, operation
from refine.models import Account, ApiToken
from refine.models.runs.spending import by_month


@operation(
    "GET",
    "/usage",
    bearer="platform",
    query={
        "from": {"type": "string", "format": "date", "description": "The first day."},
        "to": {"type": "string", "format": "date", "description": "The day after the last."},
    },
    answers={200: Answer("By month, then by agent.", "Usage")},
)
def usage(token: ApiToken, query: dict[str, Any] | None = None) -> Response:
    """Sessions, reflections and conversations, and their tokens and cost, by agent and month."""
    query = query or {}
    account = token.account
    rows = by_month(
        account,
        since=_midnight(account, query.get("from")),
        until=_midnight(account, query.get("to")),
    )
    shown = [{**row._asdict(), "cost_usd": str(row.cost_usd)} for row in rows]
    return given({"time_zone": account.time_zone, "usage": shown})


def _midnight(account: Account, day: str | None) -> datetime | None:
    if day is None:
        return None
    on = date.fromisoformat(day)
    return datetime(on.year, on.month, on.day, tzinfo=ZoneInfo(account.time_zone))
