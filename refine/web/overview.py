"""The front page: first what needs attention, then the last months."""

from collections.abc import Sequence
from typing import Any

from flask import Blueprint, render_template
from sqlalchemy import select

from refine.extensions import db
from refine.models import Account, Agent, RefinementSession
from refine.models.agent_list import count_agents
from refine.web import attention, first_steps, in_place, month_cost, scope
from refine.web.sessions import listed
from refine.web.trend import Trend

pages = Blueprint("overview", __name__)

_NEXT_SLOTS = 5
_ROWS_SHOWN = 10
_CAPS_SHOWN = 3


@pages.get("/")
def page() -> str:
    account_id, trend = scope.account_id(), Trend.of_page()
    agents, running = db.session.execute(
        count_agents("running", of=scope.owns(Agent.account_id))
    ).one()
    accounts = _next_accounts()
    return render_template(
        "overview/page.html",
        attention=attention.in_general(),
        cases=attention.in_cases(),
        trend=trend,
        costs=month_cost.of_page(_CAPS_SHOWN) if trend.outcomes else [],
        names_accounts=scope.sees_all_accounts(),
        steps=[] if trend.outcomes else first_steps.steps(has_agents=agents > 0),
        running=_running() if running else [],
        accounts=accounts,
        account=None if account_id is None else scope.account_to_change(),
        agents=agents,
        refresh_seconds=in_place.seconds_while(running),
    )


def _running() -> Sequence[Any]:
    live = listed(RefinementSession.is_live).order_by(None).order_by(RefinementSession.created_at)
    return db.session.execute(live.limit(_ROWS_SHOWN)).all()


def _next_accounts() -> Sequence[Any]:
    due = select(Account.name, Account.slug, Account.next_due_at).where(
        scope.owns(Account.id), Account.paused.is_(False), Account.next_due_at.is_not(None)
    )
    return db.session.execute(due.order_by(Account.next_due_at).limit(_NEXT_SLOTS)).all()
