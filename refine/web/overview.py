"""The front page: first what needs attention, then the last months; the first steps until then."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from flask import Blueprint, render_template
from sqlalchemy import func, select

from refine import clock
from refine.extensions import db
from refine.models import Account, Agent, RefinementSession
from refine.models.agent_list import is_in
from refine.models.runs import spending
from refine.models.runs.session import totals
from refine.web import attention, in_place, scope
from refine.web.charts import day_bars
from refine.web.forms import midnight
from refine.web.sessions import listed
from refine.web.usage import month_of_account

pages = Blueprint("overview", __name__)

_NEXT_SLOTS = 5
_ROWS_SHOWN = 10


@pages.get("/")
def page() -> str:
    account = None if scope.sees_all_accounts() else scope.account_to_change()
    trend = _trend()
    counted = select(func.count(Agent.id)).where(scope.in_scope(Agent.account_id))
    agents = db.session.scalar(counted) or 0
    running = db.session.scalar(counted.where(is_in("running"))) or 0
    has_sessions = bool(trend["outcomes"])
    return render_template(
        "overview/page.html",
        attention=attention.in_general(),
        cases=attention.in_cases(),
        trend=trend,
        cost=month_of_account(account) if account is not None and has_sessions else None,
        has_sessions=has_sessions,
        slug=scope.account_to_change().slug,
        running=_running() if running else [],
        accounts=_next_accounts(),
        account=account,
        agents=agents,
        refresh_seconds=in_place.seconds_while(running),
    )


def _running() -> Sequence[Any]:
    live = (
        listed(RefinementSession, RefinementSession.is_live)
        .order_by(None)
        .order_by(RefinementSession.created_at)
    )
    return db.session.execute(live.limit(_ROWS_SHOWN)).all()


def _next_accounts() -> Sequence[Any]:
    due = select(Account.name, Account.slug, Account.next_due_at).where(
        scope.in_scope(Account.id), Account.paused.is_(False), Account.next_due_at.is_not(None)
    )
    return db.session.execute(due.order_by(Account.next_due_at).limit(_NEXT_SLOTS)).all()


_DAYS = 90


def _trend() -> dict[str, Any]:
    account_id, zone = scope.account_id(), scope.zone()
    today = clock.now().astimezone(zone).date()
    first_day = today - timedelta(days=_DAYS - 1)
    sessions = totals.by_day(account_id, zone.key, midnight(first_day))
    spent = spending.by_day(account_id, zone.key, midnight(first_day))
    outcomes, by_day = Counter[str](), defaultdict[date, dict[str, int]](dict)
    for each in sessions:
        outcomes[each.status] += each.sessions
        by_day[each.day][each.status] = each.sessions
    return {
        "days": _DAYS,
        "today": today,
        "first_day": first_day,
        "outcomes": outcomes,
        "bars": day_bars(by_day, today, _DAYS),
        "removed_tokens": sum(each.removed_tokens for each in sessions),
        "lost": sum(each.lost for each in sessions),
        "reflections": sum(each.reflections for each in spent),
        "conversations": sum(each.conversations for each in spent),
        "cost_usd": sum((each.cost_usd for each in spent), Decimal(0)),
        "unpriced_calls": sum(each.unpriced_calls for each in spent),
    }
