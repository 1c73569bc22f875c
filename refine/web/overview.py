"""The front page: first what needs attention, then the last weeks."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from flask import Blueprint, render_template, url_for
from sqlalchemy import ColumnElement, select

from refine import clock, settings
from refine.extensions import db
from refine.health import clock_check, queue_check
from refine.models import Account, Agent, RefinementSession
from refine.models.agent_list import State, count_agents
from refine.models.runs.session import totals as session_totals
from refine.models.runs.session.totals import DayTotals
from refine.models.runs.spending import (
    cap_in_words,
    cap_is_spent,
    cost_cap_reached,
    spent_since,
)
from refine.models.runs.task.totals import conversations_given_up
from refine.rules.quantities import in_hours, plural
from refine.web import in_place, scope
from refine.web.charts import DAYS_SHOWN, day_bars
from refine.web.forms import midnight
from refine.web.sessions import listed
from refine.web.words import url_in_account

pages = Blueprint("overview", __name__)

_NEXT_SLOTS = 5
_ROWS_SHOWN = 10
_LOST_WITHIN = timedelta(days=1)
# Worst first, each with its shape.
_STATES: dict[State, tuple[str, str]] = {
    "failed": ("bad", "whose last session failed"),
    "lost": ("bad", "whose last session lost its worker"),
    "over_budget": ("warn", "over budget"),
    "declined": ("warn", "that declined the last session"),
}
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
    account_id, zone = scope.account_id(), scope.zone()
    today = clock.now().astimezone(zone).date()
    first_day = today - timedelta(days=DAYS_SHOWN - 1)
    since = midnight(first_day)
    sessions = session_totals.by_day(account_id, zone.key, since)
    agents, running, *in_states, lost_conversations, has_watched_accounts = db.session.execute(
        count_agents("running", *_STATES, of=scope.owns(Agent.account_id)).add_columns(
            conversations_given_up(account_id, clock.now() - _LOST_WITHIN).scalar_subquery(),
            select(Account.id).where(scope.owns(Account.id), _is_watched()).exists(),
        )
    ).one()
    attention = [
        *_installation(),
        *_agents(in_states),
        *_conversations(lost_conversations),
        *(_accounts() if has_watched_accounts else ()),
    ]
    return render_template(
        "overview/page.html",
        attention=sorted(attention, key=lambda item: list(_LEVELS).index(item.level)),
        removed_tokens=sum(each.removed_tokens for each in sessions),
        lost=sum(each.lost for each in sessions),
        spent=spent_since(account_id, since),
        first_day=first_day,
        bars=day_bars(_by_status(sessions), today, DAYS_SHOWN),
        outcomes=_outcomes(sessions),
        running=_running() if running else [],
        accounts=_next_accounts(),
        agents=agents,
        refresh_seconds=in_place.seconds_while(running),
    )


def _by_status(sessions: Iterable[DayTotals]) -> dict[date, dict[str, int]]:
    days: dict[date, dict[str, int]] = defaultdict(dict)
    for each in sessions:
        days[each.day][each.status] = each.sessions
    return days


def _outcomes(sessions: Iterable[DayTotals]) -> Counter[str]:
    counts = Counter[str]()
    for each in sessions:
        counts[each.status] += each.sessions
    return counts


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


def _agents(counts: Iterable[int]) -> list[Attention]:
    return [
        Attention(
            level,
            f"{plural(count, 'agent')} {words}",
            url_in_account("agents.listing", state=state),
        )
        for (state, (level, words)), count in zip(_STATES.items(), counts, strict=True)
        if count
    ]


def _conversations(lost: int) -> list[Attention]:
    """Conversations that were given up before anything was saved from them."""
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
        for check in (clock_check(), queue_check(scope.account_id()))
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


def _is_watched() -> ColumnElement[bool]:
    """Only of accounts for which this is true, ``_accounts`` asks what they spent."""
    return Account.has_late_slot(clock.now()) | Account.monthly_cost_cap_usd.is_not(None)


def _accounts() -> list[Attention]:
    at = clock.now()
    is_late = Account.has_late_slot(at)
    found = []
    is_capped = cost_cap_reached(at)
    for account, late, capped, reached in db.session.execute(
        select(Account, is_late, is_capped, cap_is_spent(at))
        .where(scope.owns(Account.id), is_late | is_capped)
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
