"""The front page: first what needs attention, then the last months; the first steps until then."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from flask import Blueprint, redirect, render_template, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import func, select

from refine import clock, settings
from refine.extensions import db
from refine.health import clock_check, queue_check
from refine.models import Account, Agent, RefinementSession
from refine.models.agent.eligibility import NO_KEY, unanswered
from refine.models.agent_list import Case, Kind, cases, is_in
from refine.models.runs.session import totals
from refine.models.runs.spending import accounts_at_cap, cap_in_words
from refine.models.runs.task import conversations_given_up
from refine.rules.quantities import plural
from refine.web import first_steps, in_place, scope
from refine.web.charts import day_bars
from refine.web.forms import midnight
from refine.web.links import url_in_account
from refine.web.sessions import listed
from refine.web.usage import month_of_account

pages = Blueprint("overview", __name__)

_NEXT_SLOTS = 5
_ROWS_SHOWN = 10


@pages.get("/")
def page() -> str:
    account = None if scope.sees_all_accounts() else scope.account_to_change()
    trend = _trend()
    counts = select(func.count(), func.count().filter(is_in("running")))
    agents, running = db.session.execute(counts.where(scope.in_scope(Agent.account_id))).one()
    return render_template(
        "overview/page.html",
        attention=in_general(),
        cases=in_cases(),
        trend=trend,
        cost=month_of_account(account) if account is not None and trend["outcomes"] else None,
        steps=first_steps.shown(),
        running=_running() if running else [],
        accounts=_next_accounts(),
        account=account,
        agents=agents,
        refresh_seconds=in_place.seconds_while(running),
    )


@pages.post("/first-steps/dismissed")
@scope.admins_only
def dismiss_steps() -> ResponseReturnValue:
    scope.user().steps_dismissed_at = clock.now()
    db.session.commit()
    return redirect(url_in_account("overview.page"), 303)


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
        "saved_tokens": sum(each.saved_tokens for each in sessions),
        "lost": sum(each.lost for each in sessions),
    }


# -- what needs attention: the installation, accounts, and agents by name --------------------------

# Conversations given up earlier need no attention.
_LOST_WITHIN = timedelta(days=1)
_ACCOUNTS_SHOWN = 10
# Why agents need attention, worst first, with level and words.
_CASES: dict[Kind, tuple[str, str]] = {
    "failed": ("bad", "with a failed session"),
    "rolled_back": ("warn", "rolled back"),
    "over_budget": ("warn", "over budget"),
    "declined": ("calm", "declined"),
}
_SET_ONE = "Set `OPENROUTER_API_KEY` on the server (any value, if your model server needs none)."
_REHEARSING = (
    "you are rehearsing: the built-in rehearsal model answers; nothing is sent anywhere or costs "
    "anything."
)
_LEVELS = {"bad": "✗", "warn": "!", "calm": "i"}


@dataclass(frozen=True)
class Attention:
    level: str
    text: str
    url: str | None = None
    link: str | None = None

    @property
    def shape(self) -> str:
        return _LEVELS[self.level]


def in_general() -> list[Attention]:
    found = [*_without_key(), *_installation(), *_conversations(), *_accounts()]
    return sorted(found, key=lambda item: list(_LEVELS).index(item.level))


def in_cases() -> list[tuple[Attention, list[Case]]]:
    found = cases(scope.account_id())
    return [
        (
            Attention(
                level,
                f"{plural(worst[0].number, 'agent')} {words}",
                url_in_account("agents.listing", state=kind),
                f"All agents {words}",
            ),
            worst,
        )
        for kind, (level, words) in _CASES.items()
        if (worst := found[kind])
    ]


def _conversations() -> list[Attention]:
    given_up = conversations_given_up(scope.account_id(), clock.now() - _LOST_WITHIN)
    lost = db.session.scalar(given_up) or 0
    if not lost:
        return []
    text = f"{plural(lost, 'conversation')} could not be read to the end"
    return [Attention("bad", text, url_in_account("ops.page"))]


def _without_key() -> list[Attention]:
    if settings.current().openrouter_api_key is not None:
        return []
    is_unanswered = unanswered()[NO_KEY]
    unanswered_agents = func.count().filter(is_unanswered)
    found = []
    for name, slug, agents, number in db.session.execute(
        select(Account.name, Account.slug, func.count(), unanswered_agents)
        .join(Agent, Agent.account_id == Account.id)
        .where(scope.in_scope(Account.id), Agent.active)
        .group_by(Account.id)
        .order_by(unanswered_agents.desc(), Account.slug)
        .limit(_ACCOUNTS_SHOWN)
    ):
        where = url_for("agents.listing", account=slug)
        if number:
            all_or_some = f"No agent of {name} can be asked"
            if number < agents:
                all_or_some = f"{number} of {plural(agents, 'agent')} of {name} cannot be asked"
            found.append(Attention("bad", f"{all_or_some}: {NO_KEY}. {_SET_ONE}", where))
        if number < agents:
            found.append(Attention("calm", f"{name}: {_REHEARSING}", where))
    return found


def _installation() -> list[Attention]:
    checks = clock_check(), queue_check(scope.account_id())
    return [
        Attention("bad", f"{check.name.capitalize()}: {check.problem}", url_for("ops.page"))
        for check in checks
        if check.problem is not None
    ]


def _accounts() -> list[Attention]:
    at, shown = clock.now(), scope.in_scope(Account.id)
    late = select(Account).where(shown, Account.has_late_slot(at)).order_by(Account.slug)
    found = [
        Attention("bad", f"{account.name}: a slot was missed", _schedule_of(account))
        for account in db.session.scalars(late.limit(_ACCOUNTS_SHOWN))
    ]
    capped = accounts_at_cap(at).where(shown).order_by(Account.slug).limit(_ACCOUNTS_SHOWN)
    for account, is_spent in db.session.execute(capped):
        why = cap_in_words(account.monthly_cost_cap_usd, is_reached=is_spent)
        found.append(Attention("warn", f"{account.name}: the {why}", _schedule_of(account)))
    return found


def _schedule_of(account: Account) -> str:
    return url_for("schedule.page", account=account.slug)
