"""The front page: what needs attention first, then how things go."""

from dataclasses import dataclass
from datetime import timedelta

from flask import Blueprint, render_template, url_for
from sqlalchemy import and_, func, select
from sqlalchemy.orm import contains_eager

from refine import clock, settings
from refine.extensions import db
from refine.health import clock_check, queue_check
from refine.models import Account, Agent, RefinementSession
from refine.models.agent_list import State, count_in_states
from refine.models.runs.run import LIVE
from refine.models.runs.session import totals as session_totals
from refine.models.runs.spending import spent_since, spent_usd_of_month
from refine.models.runs.task import totals as task_totals
from refine.web import scope
from refine.web.charts import day_bars
from refine.web.days import midnight

pages = Blueprint("overview", __name__)

_DAYS = 30
_NEXT_SLOTS = 5
_RUNNING_SHOWN = 10
_LATE = timedelta(hours=1)
_LOST_WITHIN = timedelta(days=1)


@dataclass(frozen=True)
class Attention:
    """Something to look at: how bad it is, what, and where to see it."""

    level: str
    text: str
    url: str | None = None


@pages.get("/")
def page() -> str:
    """What needs attention, what runs, the last 30 days, the next slots."""
    at = clock.now()
    ids = scope.account_ids()
    zone = scope.zone()
    today = at.astimezone(zone).date()
    first_day = today - timedelta(days=_DAYS - 1)
    since = midnight(first_day)
    days = session_totals.by_day(ids, zone.key, since)
    running = db.session.scalars(
        select(RefinementSession)
        .join(RefinementSession.agent)
        .options(contains_eager(RefinementSession.agent))
        .where(Agent.account_id.in_(ids), RefinementSession.status.in_(LIVE))
        .order_by(RefinementSession.created_at)
        .limit(_RUNNING_SHOWN)
    ).all()
    accounts = db.session.scalars(
        select(Account)
        .where(Account.id.in_(ids), Account.paused.is_(False), Account.next_due_at.is_not(None))
        .order_by(Account.next_due_at)
        .limit(_NEXT_SLOTS)
    ).all()
    return render_template(
        "overview/page.html",
        attention=sorted([*_platform(), *_agents(), *_conversations(), *_accounts()], key=_gravity),
        period=session_totals.period(ids, since),
        spent=spent_since(ids, since),
        first_day=first_day,
        bars=day_bars(days, today, _DAYS),
        outcomes=_summed(days),
        running=running,
        accounts=accounts,
        agents=db.session.scalar(select(func.count(Agent.id)).where(Agent.account_id.in_(ids))),
    )


def _gravity(item: Attention) -> int:
    return ("bad", "warn", "calm").index(item.level)


def _agents() -> list[Attention]:
    """States of agents, each with the list that shows exactly these."""
    states: list[tuple[State, str, str]] = [
        ("failed", "bad", "whose last session failed"),
        ("lost", "bad", "whose last session lost its worker"),
        ("over_budget", "warn", "over budget"),
        ("declined", "warn", "that declined the last session"),
    ]
    counts = db.session.execute(
        count_in_states(scope.account_ids(), *(each[0] for each in states))
    ).one()
    return [
        Attention(
            level,
            f"{count} agent{'s' if count > 1 else ''} {words}",
            url_for("agents.listing", state=state, account=_named_account()),
        )
        for (state, level, words), count in zip(states, counts, strict=True)
        if count
    ]


def _conversations() -> list[Attention]:
    """What was handed over and is gone, with nothing kept of it."""
    lost = task_totals.conversations_lost(scope.account_ids(), clock.now() - _LOST_WITHIN)
    if not lost:
        return []
    said = f"{lost} conversation{'s' if lost > 1 else ''} of the last day given up"
    return [
        Attention(
            "bad",
            f"{said}: nothing of {'them' if lost > 1 else 'it'} was kept",
            url_for("ops.page", account=_named_account()),
        )
    ]


def _platform() -> list[Attention]:
    found = [
        Attention("bad", f"{check.name}: {check.problem}", url_for("ops.page"))
        for check in (clock_check(), queue_check(scope.account_ids()))
        if check.problem is not None
    ]
    if settings.current().openrouter_api_key is None:
        found.append(
            Attention(
                "calm",
                "No key for a model's provider is set: agents of rehearsal/ models are answered by "
                "the rehearsal model, sessions of all others fail.",
            )
        )
    return found


def _accounts() -> list[Attention]:
    at = clock.now()
    found = []
    is_late = and_(Account.next_due_at < at - _LATE, ~Account.paused)
    is_capped = spent_usd_of_month(at) >= Account.monthly_cost_cap_usd
    for account, late, capped in db.session.execute(
        select(Account, is_late, is_capped)
        .where(Account.id.in_(scope.account_ids()), is_late | is_capped)
        .order_by(Account.slug)
        .limit(_RUNNING_SHOWN)
    ):
        where = url_for("schedule.page", account=account.slug)
        if late:
            found.append(Attention("bad", f"{account.name}: a slot was missed", where))
        if capped:
            found.append(
                Attention("warn", f"{account.name}: the monthly cost cap is reached", where)
            )
    return found


def _named_account() -> str | None:
    chosen = scope.chosen_account()
    return chosen.slug if chosen is not None else None


def _summed(days: dict) -> dict[str, int]:  # type: ignore[type-arg]
    totals: dict[str, int] = {}
    for counts in days.values():
        for status, count in counts.items():
            totals[status] = totals.get(status, 0) + count
    return totals
