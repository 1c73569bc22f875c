"""The front page: first what needs attention, then the last months."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from flask import Blueprint, render_template
from sqlalchemy import Select, select

from refine import clock
from refine.extensions import db, instant
from refine.extensions.statements import named_rows, plain_query, together
from refine.models import Account, Agent, RefinementSession
from refine.models.agent_list import count_agents
from refine.models.columns import account_parameter
from refine.models.runs.task.totals import conversations_given_up
from refine.web import attention, first_steps, granted, in_place, month_cost, scope
from refine.web.sessions import listed
from refine.web.trend import Trend

pages = Blueprint("overview", __name__)

_NEXT_SLOTS = 5
_ROWS_SHOWN = 10
_CAPS_SHOWN = 3


@pages.get("/")
def page() -> str:
    account_id = scope.account_id()
    counts = _counts(is_of_account=account_id is not None)
    counted, trend, cases, accounts, _ = together(
        partial(counts.rows, account_id=account_id, at=clock.now()),
        Trend.of_page,
        attention.in_cases,
        _next_accounts,
        granted.live,  # and so all of the frame
    )
    [(agents, running, lost_conversations, has_watched_accounts)] = counted
    return render_template(
        "overview/page.html",
        attention=attention.in_general(
            lost_conversations, has_watched_accounts=has_watched_accounts
        ),
        cases=cases,
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


@plain_query
def _counts(*, is_of_account: bool) -> Select[*tuple[Any, ...]]:
    """Count agents, those that run, and what was lost; tell whether accounts are watched."""
    account_id, at = account_parameter(is_of_account=is_of_account), instant("at")
    is_watched = scope.is_of(account_id, Account.id) & attention.is_watched(at)
    return count_agents("running", of=scope.is_of(account_id, Agent.account_id)).add_columns(
        conversations_given_up(account_id, at - attention.LOST_WITHIN).scalar_subquery(),
        select(Account.id).where(is_watched).exists(),
    )


def _running() -> Sequence[Any]:
    live = listed(RefinementSession.is_live).order_by(None).order_by(RefinementSession.created_at)
    return named_rows(db.session.execute(live.limit(_ROWS_SHOWN)))


def _next_accounts() -> Sequence[Any]:
    account_id = scope.account_id()
    due = _next_due(is_of_account=account_id is not None)
    return due.rows(account_id=account_id)


@plain_query
def _next_due(*, is_of_account: bool) -> Select[*tuple[Any, ...]]:
    account_id = account_parameter(is_of_account=is_of_account)
    return (
        select(Account.name, Account.slug, Account.next_due_at)
        .where(
            scope.is_of(account_id, Account.id),
            Account.paused.is_(False),
            Account.next_due_at.is_not(None),
        )
        .order_by(Account.next_due_at)
        .limit(_NEXT_SLOTS)
    )
