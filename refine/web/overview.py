"""The front page: first what needs attention, then the last months."""

from collections.abc import Sequence
from typing import Any

from flask import Blueprint, render_template
from sqlalchemy import select

from refine import clock
from refine.extensions import db
from refine.models import Account, Agent, RefinementSession
from refine.models.agent_list import count_agents
from refine.models.runs.task.totals import conversations_given_up
from refine.web import attention, first_steps, in_place, scope
from refine.web.sessions import listed
from refine.web.trend import Trend

pages = Blueprint("overview", __name__)

_NEXT_SLOTS = 5
_ROWS_SHOWN = 10


@pages.get("/")
def page() -> str:
    lost_since = clock.now() - attention.LOST_WITHIN
    agents, running, lost_conversations, has_watched_accounts = db.session.execute(
        count_agents("running", of=scope.owns(Agent.account_id)).add_columns(
            conversations_given_up(scope.account_id(), lost_since).scalar_subquery(),
            select(Account.id).where(scope.owns(Account.id), attention.is_watched()).exists(),
        )
    ).one()
    trend = Trend.of_page()
    return render_template(
        "overview/page.html",
        attention=attention.in_general(
            lost_conversations, has_watched_accounts=has_watched_accounts
        ),
        cases=attention.in_cases(),
        trend=trend,
        steps=[] if trend.outcomes else first_steps.steps(has_agents=agents > 0),
        running=_running() if running else [],
        accounts=_next_accounts(),
        agents=agents,
        refresh_seconds=in_place.seconds_while(running),
    )


def _running() -> Sequence[Any]:
    live = listed(RefinementSession.is_live).order_by(None).order_by(RefinementSession.created_at)
    return db.session.execute(live.limit(_ROWS_SHOWN)).all()


def _next_accounts() -> Sequence[Account]:
    return db.session.scalars(
        select(Account)
        .where(scope.owns(Account.id), Account.paused.is_(False), Account.next_due_at.is_not(None))
        .order_by(Account.next_due_at)
        .limit(_NEXT_SLOTS)
    ).all()
