"""One agent: its history in figures, its latest runs, and the button that starts a session."""

from datetime import datetime, timedelta
from itertools import accumulate

from flask import flash, redirect, render_template, url_for
from flask.typing import ResponseReturnValue

from refine import clock
from refine.errors import Refused
from refine.extensions import db
from refine.faults import as_sentence
from refine.jobs.queue import refine_later
from refine.models import Agent, MemoryTask, RefinementSession, SessionAlreadyLive
from refine.models.agent import eligibility
from refine.models.ledger.history import NOTABLE, Mass, masses
from refine.models.runs.session.scheduling import Candidates
from refine.models.runs.session.totals import Left, left_by_sessions
from refine.models.runs.task import REFLECTION_SCHEDULE
from refine.web import granted, in_place, scope
from refine.web.charts import Moment, Plot, step_plot
from refine.web.ledger import counted_kinds
from refine.web.lists import page_of
from refine.web.presenting import percent
from refine.web.sessions import latest, listed

pages = scope.area("agent")

_RUNS_SHOWN = 10
# How far back the page looks.
_SPAN = timedelta(days=365)
_MARKS = {
    **dict.fromkeys(NOTABLE, "hand"),
    "memory_refinement_rollback": "undo",
    "memory_imported": "import",
}


@pages.get("/agents/<int:agent_id>")
def page(agent_id: int) -> str:
    agent = scope.agent_or_404(agent_id)
    at = clock.now()
    composition = agent.ledger.composition(at)
    sessions = latest(_RUNS_SHOWN, RefinementSession, RefinementSession.agent_id == agent.id)
    candidates = Candidates([agent], at)
    tokens, removed = composition.core_tokens, candidates.removed_tokens(agent)
    removable = RefinementSession.removable_of(tokens, agent, removed)
    # no session begins while another one is live
    live = next((each for each in sessions if each.is_live), None)
    floor = tokens - removable
    return render_template(
        "agent/page.html",
        agent=agent,
        next_session_at=eligibility.next_session_at(agent),
        composition=composition,
        counts=counted_kinds(composition),
        plot=_plot(agent, tokens, floor, at),
        floor=floor,
        removed_percent=percent(removed, tokens + removed),
        sessions=sessions,
        live=live,
        refresh_seconds=in_place.seconds_while(live),
        tasks=latest(_RUNS_SHOWN, MemoryTask, MemoryTask.agent_id == agent.id),
        reflection_schedule=REFLECTION_SCHEDULE,
        conversations_waiting=MemoryTask.conversations_waiting(agent),
        grant=granted.active_grant_for(agent.id),
        why_no_automatic_sessions=candidates.automatic_skip_reason(agent),
    )


@pages.get("/agents/<int:agent_id>/tasks")
def tasks(agent_id: int) -> str:
    agent = scope.agent_or_404(agent_id)
    page = page_of(listed(MemoryTask, MemoryTask.agent_id == agent.id))
    rows = [row[0] for row in page.rows]
    return render_template("agent/tasks.html", agent=agent, page=page, tasks=rows)


@pages.post("/agents/<int:agent_id>/sessions")
@scope.admins_only
def refine_now(agent_id: int) -> ResponseReturnValue:
    agent = scope.agent_or_404(agent_id)
    try:
        session = refine_later(agent, "manual", user=scope.user())
        session_id = session.id
    except SessionAlreadyLive as live:
        db.session.rollback()
        flash("This agent already has a live session, which is shown here.")
        session_id = live.session_id
    except Refused as refusal:
        db.session.rollback()
        flash(as_sentence(str(refusal)), "error")
        return redirect(url_for("agent.page", agent_id=agent_id), 303)
    return redirect(url_for("sessions.page", session_id=session_id), 303)


def _plot(agent: Agent, tokens: int, floor: int, at: datetime) -> Plot | None:
    since = max(agent.created_at, at - _SPAN)
    found = masses(agent.id, since, at)
    if not found:
        return None
    moments = _moments(found, left_by_sessions(agent.id, since))
    until = at.astimezone(scope.zone())
    return step_plot(
        [*moments, Moment(at, tokens, saved=moments[-1].saved)],
        agent.core_token_budget,
        until,
        floor,
    )


def _moments(found: list[Mass], left: list[Left]) -> list[Moment]:
    """Return them in order; each session is one step, by what it saved."""
    kept = [each for each in left if each.is_kept]
    steps = [moment for each in kept for moment in _step_of(each)]
    those = {each.session_id for each in kept}
    first, *told = [
        Moment(mass.at, mass.tokens, _MARKS.get(mass.action), mass.session_id, mass.record_id)
        for mass in found
        if mass.session_id not in those or mass.action in _MARKS
    ]
    told = sorted([*told, *steps], key=lambda moment: moment.at)
    if told and told[0].session_id and not first.tokens:
        # what the first session found was there without a record
        first = first._replace(tokens=told[0].tokens)
    so_far = accumulate(moment.saved for moment in [first, *told])
    return [each._replace(saved=n) for each, n in zip([first, *told], so_far, strict=True)]


def _step_of(left: Left) -> list[Moment]:
    after = Moment(left.ended_at, left.tokens, "session", left.session_id, saved=left.saved_tokens)
    return [after._replace(tokens=left.found_tokens, mark=None, saved=0), after]
