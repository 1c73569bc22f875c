"""One agent: its history in figures, its memories, its settings; content only under a grant."""

from collections.abc import Mapping, Sequence
from typing import Any

from flask import Blueprint, abort, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import Select, select
from sqlalchemy.orm import defer

from refine import clock
from refine.errors import InvalidValue, Refused, Unreachable
from refine.extensions import db
from refine.faults import as_sentence, status_of
from refine.jobs.runs import refine_later
from refine.llm.clients import known_models
from refine.models import (
    AccessGrant,
    Agent,
    AgentMemory,
    MemoryTask,
    RefinementSession,
    SessionAlreadyLive,
)
from refine.models.agent import PROMPTS
from refine.models.ledger.history import masses
from refine.models.runs.access.grant import IDENTITY_CHANGE_WAIT
from refine.models.runs.session import ROLLING_WINDOW, scheduling
from refine.models.runs.task.scheduling import REFLECTION_SCHEDULE
from refine.rules.content import MAX_NAME_CHARACTERS, TAGS
from refine.rules.ids import id_in, masked_id
from refine.rules.quantities import in_hours
from refine.rules.threshold import DEFAULT_THRESHOLD
from refine.settings import current as current_settings
from refine.web import granted, scope
from refine.web.charts import Moment, step_plot
from refine.web.forms import whole_number
from refine.web.ledger import KINDS, LedgerFilter, counted_kinds
from refine.web.paging import PAGE_ROWS, page_of
from refine.web.presenting import percent

pages = Blueprint("agent", __name__)

_RUNS_SHOWN = 10
_EVENTS_SHOWN = 10
_MAX_RECORDS_DRAWN = 2_000
_MARKS = {
    "memory_refinement_complete": "session",
    "memory_refinement_incomplete": "session",
    "memory_refinement_rollback": "undo",
    "memory_saved": "save",
    "memory_imported": "save",
    "memory_promoted": "save",
}
_TICKED = ("1", "on", "true", "yes")


@pages.get("/agents/<int:agent_id>")
def page(agent_id: int) -> str:
    agent = scope.agent_or_404(agent_id)
    at = clock.now()
    kept = agent.ledger.composition(at)
    moments = [
        Moment(mass.at, mass.tokens, _MARKS.get(mass.action), mass.session_id)
        for mass in masses(agent.id, agent.created_at, _MAX_RECORDS_DRAWN)
    ]
    events = [moment for moment in moments if moment.mark is not None]
    return render_template(
        "agent/page.html",
        agent=agent,
        kept=kept,
        counts=counted_kinds(kept),
        plot=step_plot([*moments, Moment(at, kept.core_tokens)], agent.core_token_budget, at),
        story=events[: -_EVENTS_SHOWN - 1 : -1],
        removed=_percent_removed(agent, kept.core_tokens),
        sessions=_recent_sessions(agent),
        tasks=db.session.scalars(_tasks(agent).limit(_RUNS_SHOWN)).all(),
        last_reflection=_last_reflection(agent),
        reflection_schedule=REFLECTION_SCHEDULE,
        conversations_waiting=MemoryTask.conversations_waiting(agent),
        live=RefinementSession.live_of(agent),
        grant=granted.active_grant_for(agent.id),
        asked=AccessGrant.asked_counts(agent),
        why_not=scheduling.automatic_skip_reason(agent, at),
    )


@pages.get("/agents/<int:agent_id>/tasks")
def tasks(agent_id: int) -> str:
    agent = scope.agent_or_404(agent_id)
    page = page_of(_tasks(agent))
    return render_template(
        "agent/tasks.html", agent=agent, page=page, tasks=[row[0] for row in page.rows]
    )


@pages.get("/agents/<int:agent_id>/ledger")
def ledger(agent_id: int) -> str:
    """List the agent's memories; their content is shown only under an active grant."""
    agent = scope.agent_or_404(agent_id)
    chosen = LedgerFilter.of(request.args)
    sealed = defer(AgentMemory.sealed_content), defer(AgentMemory.sealed_extra)
    page = page_of(chosen.query(agent).options(*sealed))
    memories = [row[0] for row in page.rows]
    opened = granted.memories(agent.id, [memory.id for memory in memories])
    return _ledger_page(
        agent,
        chosen,
        page=page,
        memories=memories if opened is None else opened,
        is_readable=opened is not None,
    )


@pages.post("/agents/<int:agent_id>/ledger")
@scope.admins_only
def search(agent_id: int) -> ResponseReturnValue:
    """Search the contents of memories; by POST, so that no URL holds the words."""
    agent = scope.agent_or_404(agent_id)
    chosen, text = LedgerFilter.of(request.form), request.form.get("search", "")
    try:
        found = granted.search(
            agent.id,
            text,
            chosen.query(agent),
            rows=PAGE_ROWS,
            after_id=id_in(request.form.get("after", "")),
        )
    except InvalidValue as error:
        db.session.rollback()
        return _ledger_page(scope.agent_or_404(agent_id), chosen, error=error), status_of(error)
    if found is None:
        flash("The memories are sealed: ask the agent for access to search them.")
        return redirect(url_for("agent.ledger", agent_id=agent_id), 303)
    return _ledger_page(
        agent, chosen, memories=found.memories, is_readable=True, found=found, searched=text.strip()
    )


@pages.post("/agents/<int:agent_id>/sessions")
@scope.admins_only
def refine_now(agent_id: int) -> ResponseReturnValue:
    agent = scope.agent_or_404(agent_id)
    try:
        session_id = refine_later(agent, "manual", user=scope.user()).id
    except SessionAlreadyLive as live:
        db.session.rollback()
        flash("This agent already has a live session, which is shown here.")
        session_id = live.session_id
    except Unreachable:
        live_session = RefinementSession.live_of(agent)
        assert live_session is not None  # noqa: S101 - queued before Redis was asked; for mypy
        flash(
            "Session queued. The job queue is unreachable; the session will start automatically "
            "once it is back."
        )
        session_id = live_session.id
    except Refused as refusal:
        db.session.rollback()
        flash(as_sentence(str(refusal)), "error")
        return redirect(url_for("agent.page", agent_id=agent_id), 303)
    return redirect(url_for("sessions.page", session_id=session_id), 303)


@pages.post("/agents/<int:agent_id>/memories/<int:memory_id>/constitutional")
@scope.admins_only
def set_constitutional(agent_id: int, memory_id: int) -> ResponseReturnValue:
    """Set or lift the constitutional flag of a memory, without seeing its content."""
    memory = _memory_or_404(agent_id, memory_id)
    is_wanted = request.form.get("constitutional") == "1"
    memory.set_constitutional(is_wanted, user=scope.user())
    db.session.commit()
    flash(f"Memory #{memory_id} is {'now' if is_wanted else 'no longer'} constitutional.")
    return redirect(_ledger_url(agent_id), 303)


@pages.post("/agents/<int:agent_id>/memories/<int:memory_id>/restore")
@scope.admins_only
def restore(agent_id: int, memory_id: int) -> ResponseReturnValue:
    """Restore a discarded memory, without seeing its content."""
    memory = _memory_or_404(agent_id, memory_id)
    memory.restore(user=scope.user())
    db.session.commit()
    flash(f"Memory #{memory_id} was restored to the {memory.memory_type} memories.")
    return redirect(_ledger_url(agent_id), 303)


@pages.get("/agents/<int:agent_id>/settings")
def settings(agent_id: int) -> str:
    """Show the settings; of prompts only length and last change, unless a grant is active."""
    agent = scope.agent_or_404(agent_id)
    return _settings_page(agent, opened=granted.prompts(agent.id))


@pages.post("/agents/<int:agent_id>/settings")
@scope.admins_only
def configure(agent_id: int) -> ResponseReturnValue:
    agent = scope.agent_or_404(agent_id)
    try:
        fields = _sent_settings(agent, request.form)
        changed = agent.configure(user=scope.user(), **fields)
    except InvalidValue as error:
        db.session.rollback()
        return _settings_page(scope.agent_or_404(agent_id), error=str(error)), status_of(error)
    db.session.commit()
    flash("Saved." if changed else "Nothing was changed.")
    return redirect(url_for("agent.settings", agent_id=agent_id), 303)


@pages.post("/agents/<int:agent_id>/refinement-prompt/clear")
@scope.admins_only
def clear_prompt(agent_id: int) -> ResponseReturnValue:
    """Reset the agent's refinement prompt to the default, without reading it."""
    agent = scope.agent_or_404(agent_id)
    was_set = agent.clear_refinement_prompt(user=scope.user())
    db.session.commit()
    cleared = "Refinement prompt cleared: sessions now use the default."
    flash(cleared if was_set else "There was no refinement prompt to clear.")
    return redirect(url_for("agent.settings", agent_id=agent_id), 303)


def _sent_settings(agent: Agent, form: Mapping[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if "model_id" in form:
        fields["model_id"] = _known_model(agent, form["model_id"])
    if "core_token_budget" in form:
        fields["core_token_budget"] = whole_number(form["core_token_budget"], "core_token_budget")
    if "refinement_threshold" in form:
        fields["refinement_threshold"] = form["refinement_threshold"].strip() or None
    # browsers do not send an unticked box: a hidden field tells that the form has it
    for box in ("paused", "active"):
        if f"has_{box}" in form or box in form:
            fields[box] = form.get(box) in _TICKED
    return fields


def _known_model(agent: Agent, model_id: str) -> str:
    """The model id, if the provider offers it, or if the provider's list is unavailable."""
    model_id = model_id.strip()
    if model_id in (agent.model_id, masked_id(agent.model_id)):
        return agent.model_id
    is_demo = agent.account.is_demo
    db.session.rollback()  # no transaction is held open while the provider is asked
    known = known_models(model_id, current_settings(), is_demo=is_demo)
    if known is None:
        flash("The provider's list of models is unavailable; the model was not checked.")
    elif model_id not in known:
        raise InvalidValue(f"model_id: the provider has no model {model_id[:100]!r} with tools")
    return model_id


def _settings_page(agent: Agent, error: str | None = None, opened: Any = None) -> str:
    stored = {
        "model_id": agent.model_id,
        "core_token_budget": agent.core_token_budget,
        "refinement_threshold": "" if (t := agent.refinement_threshold) is None else t,
        "paused": agent.paused,
        "active": agent.active,
    }
    unticked = {"paused": "", "active": ""}
    return render_template(
        "agent/settings.html",
        agent=agent,
        error=error,
        values={**stored, **unticked, **request.form} if request.form else stored,
        default_threshold=DEFAULT_THRESHOLD,
        max_name=MAX_NAME_CHARACTERS,
        identity_change_wait=in_hours(IDENTITY_CHANGE_WAIT),
        opened=opened,
        prompts={name: agent.characters_of(name) for name in PROMPTS},
        last_changes=agent.last_prompt_changes(),
    )


def _ledger_page(agent: Agent, chosen: LedgerFilter, **shown: Any) -> str:
    kept = agent.ledger.composition(clock.now())
    return render_template(
        "agent/ledger.html",
        agent=agent,
        filter=chosen,
        kinds=[(kind, f"{name} ({count:,})") for kind, name, count in counted_kinds(kept)],
        tags=[(tag, tag) for tag in TAGS],
        grant=granted.active_grant_for(agent.id),
        max_searched=granted.MAX_SEARCHED_CHARACTERS,
        nothing_kept=KINDS[chosen.kind].none,
        **shown,
    )


def _ledger_url(agent_id: int) -> str:
    kind = request.form.get("kind", "core")
    page = request.form.get("page") or None
    return url_for("agent.ledger", agent_id=agent_id, kind=kind, page=page)


def _last_reflection(agent: Agent) -> MemoryTask | None:
    is_ended = MemoryTask.ended_at.is_not(None)
    reflections = _tasks(agent).where(MemoryTask.kind == "reflection", is_ended)
    return db.session.scalar(reflections.limit(1))


def _memory_or_404(agent_id: int, memory_id: int) -> AgentMemory:
    agent = scope.agent_or_404(agent_id)
    memory = db.session.get(AgentMemory, memory_id)
    if memory is None or memory.agent_id != agent.id:
        abort(404)
    return memory


def _recent_sessions(agent: Agent) -> Sequence[RefinementSession]:
    return db.session.scalars(
        select(RefinementSession)
        .where(RefinementSession.agent_id == agent.id)
        .order_by(RefinementSession.created_at.desc())
        .limit(_RUNS_SHOWN)
    ).all()


def _tasks(agent: Agent) -> Select[MemoryTask]:
    return (
        select(MemoryTask)
        .where(MemoryTask.agent_id == agent.id)
        .order_by(MemoryTask.created_at.desc(), MemoryTask.id)
    )


def _percent_removed(agent: Agent, tokens: int) -> dict[int, int]:
    """What sessions removed within so many days, in percent of the mass before those removals."""
    removed = {
        window.days: RefinementSession.removed_recently(agent, window=window)
        for window in (ROLLING_WINDOW, 3 * ROLLING_WINDOW)
    }
    return {days: percent(share, tokens + share) for days, share in removed.items()}
