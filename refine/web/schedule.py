"""When automatic sessions run: the schedule of one account."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from flask import Blueprint, flash, redirect, render_template, request
from flask.typing import ResponseReturnValue

from refine import clock
from refine.errors import InvalidValue, Unreachable
from refine.extensions import db
from refine.faults import status_of
from refine.jobs.dispatch import dispatch
from refine.jobs.sweeping import run_now
from refine.models import Account, Agent, RefinementSession, Sweep
from refine.models.runs.spending import (
    cost_cap_reason,
    cost_usd_of_month,
    is_unpriced_in_month,
)
from refine.rules.quantities import cost_in_words, plural
from refine.web import in_place, scope
from refine.web.forms import time_zones
from refine.web.sessions import listed
from refine.web.words import url_in_account

pages = Blueprint("schedule", __name__)

_NEXT_SLOTS = 3
_SESSIONS_SHOWN = 20


@pages.get("/schedule")
def page() -> str:
    return _page(scope.account_to_change())


@pages.post("/schedule")
@scope.admins_only
def change() -> ResponseReturnValue:
    account = scope.account_to_change()
    try:
        changed = account.configure(user=scope.user(), **_sent_settings(request.form))
    except InvalidValue as error:
        db.session.rollback()
        return _page(scope.account_to_change(), error=str(error)), status_of(error)
    db.session.commit()
    flash("Saved." if changed else "Nothing was changed.")
    return redirect(url_in_account("schedule.page"), 303)


@pages.post("/schedule/run")
@scope.admins_only
def run() -> ResponseReturnValue:
    turn = run_now(scope.account_to_change(), scope.user())
    try:
        dispatch()
    except Unreachable:
        flash(
            "The job queue is unreachable; queued sessions will start automatically once it is "
            "back.",
            "error",
        )
    outcomes = Counter("queued" if each.is_queued else each.outcome for each in turn.swept)
    queued = outcomes.pop("queued", 0)
    skipped = "".join(
        f"; {plural(count, 'agent')} not queued: {outcome.removeprefix('skipped: ')}"
        for outcome, count in outcomes.most_common()
    )
    waiting = (
        f" The clock asks the other {plural(turn.waiting, 'agent')} within the next minutes."
        if turn.waiting
        else ""
    )
    flash(f"{plural(queued, 'session')} queued{skipped}.{waiting}")
    following = "schedule.page" if turn.waiting else "sessions.listing"
    return redirect(url_in_account(following), 303)


def _sent_settings(form: Mapping[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if "schedule" in form:
        fields["schedule"] = form["schedule"].strip() or None
    if "time_zone" in form:
        fields["time_zone"] = form["time_zone"].strip()
    if "paused" in form:
        fields["paused"] = form["paused"] == "1"
    if "monthly_cost_cap_usd" in form:
        fields["monthly_cost_cap_usd"] = _usd(form["monthly_cost_cap_usd"])
    return fields


def _page(account: Account, error: str | None = None) -> str:
    at = clock.now()
    cap = account.monthly_cost_cap_usd
    stored = {
        "schedule": account.schedule or "",
        "time_zone": account.time_zone,
        "monthly_cost_cap_usd": "" if cap is None else cap,
    }
    sweep = Sweep.open_of(account)
    return render_template(
        "schedule/page.html",
        account=account,
        sweep=sweep,
        refresh_seconds=in_place.seconds_while(sweep),
        error=error,
        values={**stored, **request.form},
        slots=_next_slots(account, at),
        time_zones=time_zones(),
        outcomes=_recent_sessions(account),
        spent=cost_in_words(cost_usd_of_month(account, at), is_unpriced_in_month(account, at)),
        why_capped=cost_cap_reason(account, at),
    )


def _next_slots(account: Account, at: datetime) -> list[datetime]:
    slots = [account.next_slot(at)]
    while len(slots) < _NEXT_SLOTS:
        slots.append(account.next_slot(slots[-1]))
    return slots


def _recent_sessions(account: Account) -> Sequence[Any]:
    found = listed(Agent.account_id == account.id, RefinementSession.is_automatic)
    return db.session.execute(found.limit(_SESSIONS_SHOWN)).all()


def _usd(text: str) -> Decimal | None:
    given = text.strip().removeprefix("$").replace(",", "")
    if not given:
        return None
    try:
        amount = Decimal(given)
    except InvalidOperation:
        amount = Decimal(-1)
    if not (amount.is_finite() and 0 <= amount < 10**9):
        raise InvalidValue("monthly_cost_cap_usd must be an amount in dollars, such as 25 or 9.50")
    return amount.quantize(Decimal("0.01"))
