"""When automatic sessions run: the schedule of one account, and its past slots."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from flask import Blueprint, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from refine import clock, settings
from refine.errors import InvalidValue
from refine.extensions import db
from refine.faults import status_of
from refine.models import Account, Agent, RefinementSession
from refine.models.agent.eligibility import NOT_ACTIVE, PAUSED
from refine.models.agent_list import State
from refine.models.people.account import SLOT_IS_LATE_AFTER
from refine.models.runs.session import totals
from refine.models.runs.session.prospects import LOOKS_BACK, RUNNING, Prospects
from refine.models.runs.session.totals import SlotTotals
from refine.models.runs.spending import cost_cap_reason
from refine.rules.quantities import rough_span
from refine.rules.schedules import slots_until
from refine.web import in_place, schedule_form, scope
from refine.web.charts import OUTCOMES, shares
from refine.web.forms import Outdated, require_current, stored_now, time_zones, version_to_send
from refine.web.links import url_in_account
from refine.web.schedule_form import Picker, Plan
from refine.web.sessions import listed
from refine.web.usage import month_of_account
from refine.web.words import STATUSES

pages = Blueprint("schedule", __name__)

_SESSIONS_SHOWN = 20
# The agents' list has some of those that a run leaves out.
_STATES: dict[str, State] = {PAUSED: "paused", NOT_ACTIVE: "inactive", RUNNING: "running"}


@pages.get("/schedule")
def page() -> str:
    return _page(scope.account_to_change())


@pages.post("/schedule")
@scope.admins_only
def change() -> ResponseReturnValue:
    """Change the settings; with ``preview`` show the next slots, and change nothing."""
    account = scope.account_to_change()
    try:
        sent = schedule_form.sent_settings(request.form)
        if "preview" in request.form:
            return _page(account, preview=Plan.sent(account, sent))
        account.lock()
        require_current(schedule_form.stored(account), sent)
        changed = account.configure(user=scope.user(), **sent)
    except (InvalidValue, Outdated) as error:
        db.session.rollback()
        return _page(scope.account_to_change(), error=error), status_of(error)
    db.session.commit()
    flash("Saved." if changed else "Nothing was changed.")
    return redirect(url_in_account("schedule.page"), 303)


@pages.get("/schedule/run")
@scope.admins_only
def run_form() -> str:
    """Show whom a run would ask, whom not and why, and what it may cost."""
    account, at = scope.account_to_change(), clock.now()
    return render_template(
        "schedule/run.html",
        account=account,
        prospects=Prospects.of(account, at),
        looks_back=LOOKS_BACK.days,
        spent=month_of_account(account).spent,
        urls={
            reason: url_for("agents.listing", account=account.slug, state=state)
            for reason, state in _STATES.items()
        },
    )


@pages.post("/schedule/run")
@scope.admins_only
def run() -> ResponseReturnValue:
    scope.account_to_change().request_sweep(user=scope.user())
    db.session.commit()
    flash("Within a minute, a session is queued for every agent that needs one.")
    return redirect(url_in_account("schedule.page"), 303)


def _page(account: Account, error: Exception | None = None, preview: Plan | None = None) -> str:
    at, plan = clock.now(), Plan.of(account)
    stored = schedule_form.stored(account)
    return render_template(
        "schedule/page.html",
        account=account,
        # what is typed and not saved yet stays
        refresh_seconds=in_place.seconds_while(
            account.sweep_requested_at and not (preview or error)
        ),
        error=error,
        error_fields=schedule_form.FIELDS,
        picker=Picker.of(account.schedule, request.form),
        values={**stored, **request.form},
        drawn_from=version_to_send(stored, error),
        now=stored_now(error),
        plan=plan,
        slots=plan.slots(at),
        preview=preview,
        preview_slots=preview.slots(at) if preview else [],
        default_schedule=settings.current().schedule,
        past=past_slots(account, at),
        time_zones=time_zones(),
        outcomes=_recent_sessions(account),
        spent=month_of_account(account).spent,
        why_capped=cost_cap_reason(account, at),
    )


def _recent_sessions(account: Account) -> Sequence[Any]:
    found = listed(Agent.account_id == account.id, RefinementSession.is_automatic)
    return db.session.execute(found.limit(_SESSIONS_SHOWN)).all()


_SHOWN = 10


@dataclass(frozen=True)
class PastSlot:
    """A slot that came; ``is_open``: the clock has not served it in full."""

    at: datetime
    counts: Counter[str]
    first_at: datetime | None
    is_open: bool
    is_late: bool

    @property
    def key(self) -> str:
        """The slot in URLs."""
        return self.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")

    @property
    def sessions(self) -> int:
        return self.counts.total()

    @property
    def parts(self) -> list[tuple[str, float, float]]:
        """The strip: each outcome with its place and its width in percent."""
        return shares([(outcome, self.counts[outcome]) for outcome in OUTCOMES])

    @property
    def words(self) -> str:
        said = [
            f"{self.counts[outcome]:,} {STATUSES[outcome].word}"
            for outcome in OUTCOMES
            if self.counts[outcome]
        ]
        return ", ".join(said) or "no sessions"

    @property
    def remark(self) -> str | None:
        """What is unusual: it is late, was late, or still goes on."""
        if self.is_late:
            return "missed so far: check the clock"
        if self.is_open:
            return "not finished yet"
        delay = self.first_at - self.at if self.first_at is not None else timedelta(0)
        return f"late by {rough_span(delay)}" if delay > SLOT_IS_LATE_AFTER else None


def past_slots(account: Account, at: datetime) -> list[PastSlot]:
    """Return the account's last slots, newest first: by its schedule, and those with sessions."""
    due = slots_until(account.effective_schedule, account.time_zone, at)
    latest = list(islice(due, _SHOWN))
    found: dict[datetime, list[SlotTotals]] = defaultdict(list)
    for each in totals.by_slot(account.id, latest[-1]):
        found[each.slot_at].append(each)
    expected = {slot for slot in latest if slot >= account.created_at}
    newest_first = sorted(expected | found.keys(), reverse=True)[:_SHOWN]
    return [_past_slot(account, slot, found[slot], at) for slot in newest_first]


def _past_slot(account: Account, slot: datetime, found: list[SlotTotals], at: datetime) -> PastSlot:
    counts = Counter({each.status: each.sessions for each in found})
    first_at = min((each.first_at for each in found), default=None)
    is_open = account.next_due_at is not None and account.next_due_at <= slot
    is_late = is_open and not account.paused and at - slot > SLOT_IS_LATE_AFTER
    return PastSlot(slot, counts, first_at, is_open=is_open, is_late=is_late)
