"""The front page: first what needs attention, then the last months; the first steps until then."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from flask import redirect, render_template, request
from flask.typing import ResponseReturnValue
from sqlalchemy import func, select

from refine import clock
from refine.extensions import db
from refine.models import Account, Agent, RefinementSession
from refine.models.agent_list import is_in
from refine.models.attention import number_put_aside, put_aside_now
from refine.models.runs.session import totals
from refine.web import attention, first_steps, in_place, scope
from refine.web.charts import OUTCOMES, day_bars
from refine.web.forms import midnight
from refine.web.links import url_in_account
from refine.web.lists import page_of
from refine.web.sessions import latest
from refine.web.usage import month_of_account
from refine.web.words import STATUSES, day

pages = scope.area("overview")

_NEXT_SLOTS = 5
_ROWS_SHOWN = 10


@pages.get("/")
def page() -> str:
    account = None if scope.sees_all_accounts() else scope.account_to_change()
    trend = _trend()
    is_running = func.count().filter(is_in("running"))
    counts = select(func.count(), is_running, func.count(Agent.erase_at))
    mine = counts.where(scope.in_scope(Agent.account_id))
    agents, running, erasures = db.session.execute(mine).one()
    live = latest(_ROWS_SHOWN, RefinementSession, RefinementSession.is_live) if running else ()
    return render_template(
        "overview/page.html",
        general=attention.in_general(with_erasures=erasures > 0),
        groups=attention.in_groups(),
        put_aside=number_put_aside(scope.account_id()),
        aside=page_of(put_aside_now(scope.account_id())) if request.args.get("aside") else None,
        trend=trend,
        cost=month_of_account(account) if account is not None and trend["outcomes"] else None,
        steps=first_steps.shown(),
        running=live,
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
    bars = day_bars(by_day, today, _DAYS)
    return {
        "days": _DAYS,
        "today": today,
        "first_day": first_day,
        "outcomes": Counter({each: outcomes[each] for each in OUTCOMES if outcomes[each]}),
        "bars": bars,
        "told": [(x, _told(on, numbers)) for x, on, numbers in bars.days if numbers],
        "saved_tokens": sum(each.saved_tokens for each in sessions),
        "lost": sum(each.lost for each in sessions),
    }


def _told(on: date, numbers: Mapping[str, int]) -> str:
    each = [f"{numbers[name]} {STATUSES[name].word}" for name in OUTCOMES if name in numbers]
    return f"{day(on)}: {', '.join(each)}"
