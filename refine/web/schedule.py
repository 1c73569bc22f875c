"""When automatic sessions run: the schedule of one account, its form, and its past runs."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import time
from decimal import Decimal
from itertools import islice
from typing import Any, Literal

from flask import render_template, request
from flask.typing import ResponseReturnValue
from sqlalchemy import func, select
from werkzeug.datastructures import MultiDict

from refine import clock, settings
from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import Agent, RefinementSession, retention
from refine.models.people.account import MAX_KEPT_MONTHS, RETENTION_WAIT
from refine.models.runs.session.scheduling import Prospects
from refine.models.runs.spending import CostCaps
from refine.rules.quantities import finite, in_days
from refine.rules.schedules import WEEKDAYS, WeeklyTime, is_moved, slots_after
from refine.web import forms, in_place, scope
from refine.web.links import url_in_account
from refine.web.lists import page_of
from refine.web.sessions import latest
from refine.web.usage import month_of_account

pages = scope.area("schedule")

_SESSIONS_SHOWN = 20
_NEXT_SHOWN = 5
_STORED = ("schedule", "time_zone", "monthly_cost_cap_usd", "kept_months")


@pages.get("/schedule")
def page(error: Exception | None = None) -> str:
    account, at = scope.account_to_change(), clock.now()
    stored = forms.stored_fields(account, _STORED)
    when = account.effective_schedule, account.time_zone
    automatic = Agent.account_id == account.id, RefinementSession.is_automatic
    return render_template(
        "schedule/page.html",
        account=account,
        # what is typed and not saved yet stays
        refresh_seconds=None if error else in_place.seconds_while(account.sweep_requested_at),
        error=error,
        error_fields=("days", "time", *_STORED),
        picker=Picker.of(account.schedule, request.form),
        values={**stored, **request.form},
        drawn_from=forms.version_to_send(stored, error),
        slots=[
            (slot, is_moved(slot, *when)) for slot in islice(slots_after(*when, at), _NEXT_SHOWN)
        ],
        default_schedule=settings.current().schedule,
        time_zones=forms.time_zones(),
        outcomes=latest(_SESSIONS_SHOWN, RefinementSession, *automatic),
        spent=month_of_account(account).spent,
        why_capped=CostCaps(at).reason(account),
        retention_wait=in_days(RETENTION_WAIT),
    )


@pages.post("/schedule")
@scope.admins_only
@forms.shown_again(page)
def change() -> ResponseReturnValue:
    account, sent = scope.account_to_change(), _sent_settings(request.form)
    account.lock()
    forms.require_current(forms.stored_fields(account, _STORED), sent)
    changed = account.configure(user=scope.user(), **sent)
    said = "Saved." if changed else "Nothing was changed."
    return forms.done(said, url_in_account("schedule.page"))


@pages.get("/schedule/run")
@scope.admins_only
def run_form() -> str:
    account, at = scope.account_to_change(), clock.now()
    return render_template(
        "schedule/run.html",
        account=account,
        prospects=Prospects.of(account, at),
        spent=month_of_account(account).spent,
    )


@pages.post("/schedule/run")
@scope.admins_only
def run() -> ResponseReturnValue:
    scope.account_to_change().request_sweep(user=scope.user())
    said = "Within a minute, a session is queued for every agent that needs one."
    return forms.done(said, url_in_account("schedule.page"))


@pages.get("/schedule/retention")
@scope.admins_only
def retention_form() -> str:
    """What a number of months would erase: nothing is changed."""
    account, given = scope.account_to_change(), request.args.get("months", type=int)
    months = min(max(given or account.kept_months or 12, 1), MAX_KEPT_MONTHS)
    would_go = retention.counts(account, clock.now(), months)
    c = would_go.subquery().c
    totals = db.session.execute(select(func.sum(c.memories), func.sum(c.sessions))).one()
    return render_template(
        "schedule/retention.html",
        account=account,
        months=months,
        page=page_of(would_go),
        totals=totals,
    )


# The default of the installation, days and a time of the week, or a cron expression.
Kind = Literal["default", "weekly", "cron"]
_MONDAY_FIRST = (1, 2, 3, 4, 5, 6, 0)
_FIRST_TIME = WeeklyTime((1,), time(4))


@dataclass(frozen=True)
class Picker:
    kind: Kind
    days: Collection[int]
    time: str
    cron: str

    @classmethod
    def of(cls, schedule: str | None, form: MultiDict[str, str]) -> "Picker":
        if (kind := _kind(form)) is not None:
            days = [day for day in range(7) if str(day) in form.getlist("days")]
            return cls(kind, days, form.get("time", ""), form.get("schedule", ""))
        weekly = WeeklyTime.of(schedule) if schedule is not None else None
        shown = weekly or _FIRST_TIME
        kind = "default" if schedule is None else "cron" if weekly is None else "weekly"
        return cls(kind, shown.days, f"{shown.at:%H:%M}", schedule or "")

    @property
    def weekdays(self) -> list[tuple[int, str]]:
        return [(day, WEEKDAYS[day]) for day in _MONDAY_FIRST]


def _sent_settings(form: MultiDict[str, str]) -> dict[str, Any]:
    kind = _kind(form)
    schedule = {"schedule": _schedule(form, kind)} if kind is not None else {}
    return schedule | forms.sent_fields(_READERS)


def _kind(form: MultiDict[str, str]) -> Kind | None:
    match form.get("kind"):
        case "default":
            return "default"
        case "weekly":
            return "weekly"
    return "cron" if "schedule" in form else None


def _schedule(form: MultiDict[str, str], kind: Kind) -> str | None:
    if kind == "default":
        return None
    if kind == "weekly":
        return WeeklyTime.picked(form.getlist("days"), form.get("time", "").strip()).schedule
    return form["schedule"].strip() or None


def _usd(text: str) -> Decimal | None:
    given = text.strip().removeprefix("$").replace(",", "")
    if not given:
        return None
    amount = finite(given)
    if amount is None or not 0 <= amount < 10**9:
        raise InvalidValue("monthly_cost_cap_usd must be an amount in dollars, such as 25 or 9.50")
    return amount.quantize(Decimal("0.01"))


_READERS: forms.Readers = {
    "time_zone": str.strip,
    "paused": forms.is_ticked,
    "monthly_cost_cap_usd": _usd,
    "kept_months": lambda text: forms.whole_number(text, "kept_months") if text.strip() else None,
}
