"""One agent: its history in figures, its latest runs, and the button that starts a session."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from flask import Blueprint, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import Select

from refine import clock
from refine.errors import Refused
from refine.extensions import db
from refine.faults import as_sentence
from refine.jobs.runs import refine_later
from refine.models import (
    AccessGrant,
    Agent,
    MemoryTask,
    RefinementSession,
    SessionAlreadyLive,
)
from refine.models.agent import eligibility
from refine.models.ledger.history import NOTABLE, Mass, masses
from refine.models.ledger.ledger import Composition
from refine.models.runs import LIVE
from refine.models.runs.session import ROLLING_WINDOW
from refine.models.runs.session.scheduling import Candidates
from refine.models.runs.session.totals import Left, left_by_sessions
from refine.models.runs.task.scheduling import REFLECTION_SCHEDULE
from refine.rules.forecast import Growth
from refine.web import granted, in_place, scope
from refine.web.charts import Moment, Plot, step_plot
from refine.web.ledger import counted_kinds
from refine.web.lists import page_of
from refine.web.presenting import percent
from refine.web.runs import latest, listed_tasks

pages = Blueprint("agent", __name__)

_RUNS_SHOWN = 10
_WINDOWS = (ROLLING_WINDOW, 3 * ROLLING_WINDOW)


@pages.get("/agents/<int:agent_id>")
def page(agent_id: int) -> str:
    agent = scope.agent_or_404(agent_id)
    at = clock.now()
    story = Story.of_page(agent, at)
    sessions = latest(RefinementSession, _RUNS_SHOWN, agent=agent)
    tasks = latest(MemoryTask, _RUNS_SHOWN, agent=agent)
    composition = story.composition
    candidates = Candidates([agent], at, looking_back=max(_WINDOWS))
    removable = RefinementSession.removable_of(
        composition.core_tokens, agent, candidates.removed_tokens(agent)
    )
    # no session begins while another one is live
    live = next((each for each in sessions if each.status in LIVE), None)
    return render_template(
        "agent/page.html",
        agent=agent,
        next_session_at=eligibility.next_session_at(agent),
        composition=composition,
        counts=counted_kinds(composition),
        story=story,
        floor=composition.core_tokens - removable,
        RANGES=RANGES,
        removed=_percent_removed(candidates, agent, composition.core_tokens),
        sessions=sessions,
        live=live,
        refresh_seconds=in_place.seconds_while(live),
        tasks=tasks,
        last_reflection=_last_reflection(agent, tasks),
        reflection_schedule=REFLECTION_SCHEDULE,
        conversations_waiting=MemoryTask.conversations_waiting(agent),
        grant=granted.active_grant_for(agent.id),
        asked=AccessGrant.asked_counts(agent),
        why_no_automatic_sessions=candidates.automatic_skip_reason(agent),
    )


@pages.get("/agents/<int:agent_id>/tasks")
def tasks(agent_id: int) -> str:
    agent = scope.agent_or_404(agent_id)
    page = page_of(_tasks(agent))
    return render_template("agent/tasks.html", agent=agent, page=page, tasks=page.rows)


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


def _last_reflection(agent: Agent, tasks: Sequence[Any]) -> Any:
    """Return the last reflection that ended: among these latest tasks, or before them."""
    for task in tasks:
        if task.kind == "reflection" and task.ended_at is not None:
            return task
    if len(tasks) < _RUNS_SHOWN:
        return None
    is_ended = MemoryTask.ended_at.is_not(None)
    reflections = _tasks(agent).where(MemoryTask.kind == "reflection", is_ended)
    return db.session.execute(reflections.limit(1)).first()


def _tasks(agent: Agent) -> Select[*tuple[Any, ...]]:
    return listed_tasks(MemoryTask.agent_id == agent.id)


def _percent_removed(candidates: Candidates, agent: Agent, tokens: int) -> dict[int, int]:
    """What sessions removed within so many days, in percent of the mass before those removals."""
    removed = {window.days: candidates.removed_tokens(agent, within=window) for window in _WINDOWS}
    return {days: percent(share, tokens + share) for days, share in removed.items()}


# What the URL's ``range`` may be, in days; None: since the agent was added.
RANGES = {"7": 7, "30": 30, "90": 90, "all": None}
DEFAULT_RANGE = "30"

_EVENTS_SHOWN = 10
_SAVES = ("memory_saved", "memory_promoted")
_MARKS = {
    **dict.fromkeys(NOTABLE, "hand"),
    **dict.fromkeys(_SAVES, "save"),
    "memory_refinement_rollback": "undo",
    "memory_imported": "import",
}


@dataclass(frozen=True)
class Story:
    """What the page tells of an agent in the range that the URL asks for."""

    range: str
    growth: Growth
    moments: list[Moment]
    composition: Composition

    @classmethod
    def of_page(cls, agent: Agent, at: datetime) -> "Story":
        """Read it, in a few statements, however long it is."""
        chosen = request.args.get("range", DEFAULT_RANGE)
        chosen = chosen if chosen in RANGES else DEFAULT_RANGE
        days = RANGES[chosen]
        since = agent.created_at
        if days is not None:
            since = max(since, at - timedelta(days=days))
        composition, found = agent.ledger.composition(at), masses(agent.id, since, at)
        removed, left = left_by_sessions(agent.id, since)
        tokens = composition.core_tokens
        before = found[0].tokens if found else tokens
        growth = Growth(since, at, before, tokens, removed, agent.core_token_budget)
        return cls(chosen, growth, _moments(found, left), composition)

    @cached_property
    def events(self) -> list[Moment]:
        """The last events, newest first."""
        marked = [moment for moment in self.moments if moment.mark is not None]
        return marked[: -_EVENTS_SHOWN - 1 : -1]

    def plot(self, floor: int) -> Plot | None:
        """Draw the token mass up to now, with the budget and what a session must leave."""
        if not self.moments:
            return None
        until, tokens = self.growth.until.astimezone(scope.zone()), self.growth.tokens
        now = Moment(self.growth.until, tokens)
        return step_plot([*self.moments, now], self.growth.budget, until, floor)


def _moments(found: list[Mass], left: list[Left]) -> list[Moment]:
    """Return both as moments, oldest first; the first one says where the line begins."""
    ends = [
        Moment(each.ended_at, each.tokens, "session", each.session_id)
        for each in left
        if each.is_kept
    ]
    told = [
        Moment(mass.at, mass.tokens, _MARKS.get(mass.action), mass.session_id, mass.record_id)
        for mass in found
    ]
    return [*told[:1], *sorted([*told[1:], *ends], key=lambda moment: moment.at)]
