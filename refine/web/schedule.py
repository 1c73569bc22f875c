"""When sessions run by themselves: one account's schedule, in plain words."""

from collections import Counter
from decimal import Decimal, InvalidOperation
from typing import Any
from zoneinfo import available_timezones

from flask import Blueprint, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import select
from sqlalchemy.orm import contains_eager

from refine import clock
from refine.errors import InvalidValue, Unreachable
from refine.extensions import db
from refine.jobs.runs import sweep
from refine.models import Account, Agent, RefinementSession
from refine.models.runs.session import AUTOMATIC_TRIGGERS
from refine.models.runs.spending import cost_usd_of_month
from refine.web import scope

pages = Blueprint("schedule", __name__)

_NEXT_SLOTS = 3
_OUTCOMES_SHOWN = 20


@pages.get("/schedule")
def page() -> str:
    """The schedule, its next dates, its last outcomes."""
    return _page(scope.account_to_change())


@pages.post("/schedule")
@scope.acting
def change() -> ResponseReturnValue:
    """Take a new schedule, time zone, pause or cost cap."""
    account = scope.account_to_change()
    form, fields = request.form, dict[str, Any]()
    try:
        if "schedule" in form:
            fields["schedule"] = form["schedule"].strip() or None
        if "time_zone" in form:
            fields["time_zone"] = form["time_zone"].strip()
        if "paused" in form:
            fields["paused"] = form["paused"] == "1"
        if "monthly_cost_cap_usd" in form:
            fields["monthly_cost_cap_usd"] = _usd(form["monthly_cost_cap_usd"])
        changed = account.configure(user=scope.user(), **fields)
    except InvalidValue as error:
        db.session.rollback()
        return _page(scope.account_to_change(), error=str(error)), 422
    db.session.commit()
    flash("Saved." if changed else "Nothing was changed.")
    return redirect(url_for("schedule.page", account=_named_account()), 303)


@pages.post("/schedule/run")
@scope.acting
def run() -> ResponseReturnValue:
    """Queue a session for every agent of the account that needs one, now."""
    account = scope.account_to_change()
    outcomes: Counter[str] = Counter()
    try:
        for _, outcome in sweep(account, user=scope.user()):
            outcomes["queued" if outcome.startswith("queued") else outcome] += 1
    except Unreachable:
        flash("The queue cannot be reached now: what was queued starts by itself later.", "error")
    queued = outcomes.pop("queued", 0)
    others = "".join(f"; {count} not: {why}" for why, count in outcomes.most_common())
    flash(f"{queued} session{'' if queued == 1 else 's'} queued{others}.")
    return redirect(url_for("sessions.listing", account=_named_account()), 303)


def _page(account: Account, error: str | None = None) -> str:
    at = clock.now()
    slots, slot = [], at
    for _ in range(_NEXT_SLOTS):
        slot = account.next_slot(slot)
        slots.append(slot)
    return render_template(
        "schedule/page.html",
        account=account,
        error=error,
        form=request.form,
        slots=slots,
        time_zones=sorted(available_timezones()),
        outcomes=_last_outcomes(account),
        spent_usd=cost_usd_of_month(account, at),
    )


def _last_outcomes(account: Account) -> list[RefinementSession]:
    return list(
        db.session.scalars(
            select(RefinementSession)
            .join(RefinementSession.agent)
            .options(contains_eager(RefinementSession.agent))
            .where(
                Agent.account_id == account.id,
                RefinementSession.trigger.in_(AUTOMATIC_TRIGGERS),
            )
            .order_by(RefinementSession.created_at.desc())
            .limit(_OUTCOMES_SHOWN)
        )
    )


def _named_account() -> str | None:
    return request.args.get("account") or None


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
