"""The front page: first what needs attention, then the last weeks."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from flask import Blueprint, render_template, url_for
from sqlalchemy import Select, func, select

from refine import clock, settings
from refine.extensions import db
from refine.health import clock_check, queue_check
from refine.models import Account, Agent, RefinementSession
from refine.models.agent_list import State, count_in_states
from refine.models.runs.session import totals as session_totals
from refine.models.runs.spending import (
    cap_in_words,
    cap_is_spent,
    cost_cap_reached,
    spent_since,
)
from refine.models.runs.task import totals as task_totals
from refine.rules.quantities import in_hours, plural
from refine.web import scope
from refine.web.charts import DAYS_SHOWN, day_bars
from refine.web.forms import midnight
from refine.web.words import url_in_account

pages = Blueprint("overview", __name__)

_NEXT_SLOTS = 5
_ROWS_SHOWN = 10
_LOST_WITHIN = timedelta(days=1)
# Worst first, each with its shape.
_LEVELS = {"bad": "✗", "warn": "!", "calm": "i"}


@dataclass(frozen=True)
class Attention:
    level: str
    text: str
    url: str | None = None

    @property
    def shape(self) -> str:
        """The shape of its level, as no level is shown by colour alone."""
        return _LEVELS[self.level]


@pages.get("/")
def page() -> str:
    ids, zone = scope.account_ids(), scope.zone()
    today = clock.now().astimezone(zone).date()
    first_day = today - timedelta(days=DAYS_SHOWN - 1)
    since = midnight(first_day)
    days = session_totals.by_day(ids, zone.key, since)
    attention = [*_installation(), *_agents(), *_conversations(), *_accounts()]
    return render_template(
        "overview/page.html",
        attention=sorted(attention, key=lambda item: list(_LEVELS).index(item.level)),
        period=session_totals.period(ids, since),
        spent=spent_since(ids, since),
        first_day=first_day,
        bars=day_bars(days, today, DAYS_SHOWN),
        outcomes=sum(map(Counter, days.values()), Counter()),
        running=_running(),
        accounts=_next_accounts(ids),
        agents=db.session.scalar(select(func.count(Agent.id)).where(Agent.account_id.in_(ids))),
    )


def _running() -> Sequence[RefinementSession]:
    live = scope.recent(RefinementSession, RefinementSession.is_live)
    oldest_first = live.order_by(None).order_by(RefinementSession.created_at)
    return db.session.scalars(oldest_first.limit(_ROWS_SHOWN)).all()


def _next_accounts(ids: Select[int]) -> Sequence[Account]:
    return db.session.scalars(
        select(Account)
        .where(Account.id.in_(ids), Account.paused.is_(False), Account.next_due_at.is_not(None))
        .order_by(Account.next_due_at)
        .limit(_NEXT_SLOTS)
    ).all()


def _agents() -> list[Attention]:
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
            f"{plural(count, 'agent')} {words}",
            url_in_account("agents.listing", state=state),
        )
        for (state, level, words), count in zip(states, counts, strict=True)
        if count
    ]


def _conversations() -> list[Attention]:
    """Conversations that were given up before anything was saved from them."""
    lost = task_totals.conversations_given_up(scope.account_ids(), clock.now() - _LOST_WITHIN)
    if not lost:
        return []
    when = f"in the last {in_hours(_LOST_WITHIN)}"
    text = f"{plural(lost, 'conversation')} given up {when}, with nothing saved"
    return [Attention("bad", text, url_in_account("ops.page"))]


def _rehearsing() -> str:
    return "of every account" if settings.current().rehearsal else "of the demo account"


def _installation() -> list[Attention]:
    found = [
        Attention("bad", f"{check.name}: {check.problem}", url_for("ops.page"))
        for check in (clock_check(), queue_check(scope.account_ids()))
        if check.problem is not None
    ]
    if settings.current().openrouter_api_key is None:
        found.append(
            Attention(
                "calm",
                f"No API key is set: agents {_rehearsing()} with a rehearsal/ model are answered "
                "by the rehearsal model; sessions of all other agents fail.",
            )
        )
    return found


def _accounts() -> list[Attention]:
    at = clock.now()
    found = []
    is_late = Account.has_late_slot(at)
    is_capped = cost_cap_reached(at)
    for account, late, capped, reached in db.session.execute(
        select(Account, is_late, is_capped, cap_is_spent(at))
        .where(Account.id.in_(scope.account_ids()), is_late | is_capped)
        .order_by(Account.slug)
        .limit(_ROWS_SHOWN)
    ):
        where = url_for("schedule.page", account=account.slug)
        if late:
            found.append(Attention("bad", f"{account.name}: a slot was missed", where))
        if capped and (cap := account.monthly_cost_cap_usd) is not None:
            why = cap_in_words(cap, is_reached=reached)
            found.append(Attention("warn", f"{account.name}: the {why}", where))
    return found
