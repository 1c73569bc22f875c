"""One agent: its story in figures, its memories, its settings; content under a grant alone."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from flask import Blueprint, abort, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import Select, func, select
from sqlalchemy.orm import defer

from refine import clock
from refine.errors import InvalidValue, Refused, Unreachable
from refine.extensions import db
from refine.jobs.runs import refine_later
from refine.llm.clients import known_models
from refine.models import (
    Agent,
    AgentMemory,
    MemoryTask,
    RefinementSession,
    SessionAlreadyLive,
)
from refine.models.agent import PROMPTS
from refine.models.ledger import MEMORY_KINDS, is_of_kind
from refine.models.ledger.history import Mass, masses
from refine.models.runs.session import ROLLING_WINDOW, scheduling
from refine.rules.content import TAGS
from refine.settings import current as current_settings
from refine.web import granted, scope
from refine.web.charts import Moment, step_plot
from refine.web.forms import whole_number
from refine.web.paging import PAGE_ROWS, page_of

pages = Blueprint("agent", __name__)

_SESSIONS_SHOWN = 10
_TASKS_SHOWN = 10
_RECORDS_DRAWN = 2_000
_MARKS = {
    "memory_refinement_complete": "session",
    "memory_refinement_incomplete": "session",
    "memory_saved": "save",
    "memory_imported": "save",
    "memory_promoted": "save",
}


@pages.get("/agents/<int:agent_id>")
def page(agent_id: int) -> str:
    """What it keeps, how that went over time, its last sessions."""
    agent = scope.agent_or_404(agent_id)
    at = clock.now()
    kept = agent.ledger.composition(at)
    moments = [_moment(mass) for mass in masses(agent.id, agent.created_at, _RECORDS_DRAWN)]
    moments.append(Moment(at, kept.core_tokens))
    return render_template(
        "agent/page.html",
        agent=agent,
        kept=kept,
        plot=step_plot(moments, agent.core_token_budget, at),
        story=[moment for moment in moments if moment.mark is not None][
            : -_SESSIONS_SHOWN - 1 : -1
        ],
        removed={
            days: _share_removed(agent, kept.core_tokens, days)
            for days in (ROLLING_WINDOW.days, 3 * ROLLING_WINDOW.days)
        },
        sessions=_sessions(agent),
        between=_Between.of(agent),
        live=RefinementSession.live_of(agent),
        why_not=scheduling.skip_reason(agent, at),
    )


@pages.get("/agents/<int:agent_id>/tasks")
def tasks(agent_id: int) -> str:
    """Its reflections and conversations, newest first."""
    agent = scope.agent_or_404(agent_id)
    page = page_of(_tasks(agent))
    return render_template(
        "agent/tasks.html", agent=agent, page=page, tasks=[row[0] for row in page.rows]
    )


@pages.get("/agents/<int:agent_id>/ledger")
def ledger(agent_id: int) -> str:
    """Its memories: with what they say to whom it lets read, without it to everybody else."""
    agent = scope.agent_or_404(agent_id)
    wanted = _Wanted.of(request.args)
    sealed = defer(AgentMemory.sealed_content), defer(AgentMemory.sealed_extra)
    page = page_of(wanted.query(agent).options(*sealed))
    memories = [row[0] for row in page.rows]
    opened = granted.memories(agent.id, [memory.id for memory in memories])
    return _ledger_page(
        agent,
        wanted,
        page=page,
        memories=memories if opened is None else opened,
        is_open=opened is not None,
    )


@pages.post("/agents/<int:agent_id>/ledger")
@scope.acting
def search(agent_id: int) -> ResponseReturnValue:
    """Search in what the memories say. A form that is posted: the words go into no address."""
    agent = scope.agent_or_404(agent_id)
    wanted, text = _Wanted.of(request.form), request.form.get("search", "")
    after = request.form.get("after", "")
    try:
        found = granted.search(
            agent.id,
            text,
            wanted.query(agent),
            rows=PAGE_ROWS,
            after_id=whole_number(after, "after") if after else None,
        )
    except InvalidValue as error:
        db.session.rollback()
        return _ledger_page(scope.agent_or_404(agent_id), wanted, error=error), 422
    if found is None:
        flash("Its memories are sealed: to search them, ask the agent for access.")
        return redirect(url_for("agent.ledger", agent_id=agent_id), 303)
    return _ledger_page(
        agent, wanted, memories=found.memories, is_open=True, found=found, searched=text.strip()
    )


@pages.post("/agents/<int:agent_id>/sessions")
@scope.acting
def refine_now(agent_id: int) -> ResponseReturnValue:
    """Ask for a session by hand, and go to it."""
    agent = scope.agent_or_404(agent_id)
    try:
        session_id = refine_later(agent, "manual", user=scope.user()).id
    except SessionAlreadyLive as live:
        db.session.rollback()
        flash("This agent has a live session already: here it is.")
        session_id = live.session_id
    except Unreachable:
        live_session = RefinementSession.live_of(agent)
        assert live_session is not None  # noqa: S101 - queued before Redis was asked; for mypy
        flash("The session waits: the queue cannot be reached now. It starts by itself later.")
        session_id = live_session.id
    except Refused as refusal:
        db.session.rollback()
        flash(f"{refusal}.", "error")
        return redirect(url_for("agent.page", agent_id=agent_id), 303)
    return redirect(url_for("sessions.page", session_id=session_id), 303)


@pages.post("/agents/<int:agent_id>/memories/<int:memory_id>/constitutional")
@scope.acting
def set_constitutional(agent_id: int, memory_id: int) -> ResponseReturnValue:
    """Set or lift the flag of a memory, unseen."""
    memory = _memory_or_404(agent_id, memory_id)
    wanted = request.form.get("constitutional") == "1"
    memory.set_constitutional(wanted, user=scope.user())
    db.session.commit()
    flash(f"Memory #{memory_id} is {'constitutional' if wanted else 'no longer constitutional'}.")
    return redirect(_back_to_ledger(agent_id), 303)


@pages.post("/agents/<int:agent_id>/memories/<int:memory_id>/restore")
@scope.acting
def restore(agent_id: int, memory_id: int) -> ResponseReturnValue:
    """Bring back a discarded memory, unseen."""
    memory = _memory_or_404(agent_id, memory_id)
    memory.restore(user=scope.user())
    db.session.commit()
    flash(f"Memory #{memory_id} is back among the agent's {memory.memory_type} memories.")
    return redirect(_back_to_ledger(agent_id), 303)


@pages.get("/agents/<int:agent_id>/settings")
def settings(agent_id: int) -> str:
    """Its settings; of prompts length and last change alone, but to whom the agent lets read."""
    agent = scope.agent_or_404(agent_id)
    return _settings_page(agent, opened=granted.prompts(agent.id))


@pages.post("/agents/<int:agent_id>/settings")
@scope.acting
def configure(agent_id: int) -> ResponseReturnValue:
    """Take the settings, or say which one is wrong."""
    agent = scope.agent_or_404(agent_id)
    form = request.form
    fields: dict[str, Any] = {}
    try:
        if "model_id" in form:
            fields["model_id"] = _known_model(agent, form["model_id"])
        if "core_token_budget" in form:
            fields["core_token_budget"] = whole_number(
                form["core_token_budget"], "core_token_budget"
            )
        if "refinement_threshold" in form:
            fields["refinement_threshold"] = form["refinement_threshold"].strip() or None
        # a box that is not ticked is not sent: the form says that it has them
        for box in ("paused", "active"):
            if f"has_{box}" in form or box in form:
                fields[box] = form.get(box) in ("1", "on", "true", "yes")
        changed = agent.configure(user=scope.user(), **fields)
    except InvalidValue as error:
        db.session.rollback()
        return _settings_page(scope.agent_or_404(agent_id), error=str(error)), 422
    db.session.commit()
    flash("Saved." if changed else "Nothing was changed.")
    return redirect(url_for("agent.settings", agent_id=agent_id), 303)


@pages.post("/agents/<int:agent_id>/refinement-prompt/clear")
@scope.acting
def clear_prompt(agent_id: int) -> ResponseReturnValue:
    """Set the agent's style of sessions back to the default, unread."""
    agent = scope.agent_or_404(agent_id)
    had_one = agent.clear_refinement_prompt(user=scope.user())
    db.session.commit()
    flash("Its sessions use the default style now." if had_one else "It had no style of its own.")
    return redirect(url_for("agent.settings", agent_id=agent_id), 303)


def _ledger_page(agent: Agent, wanted: "_Wanted", **shown: Any) -> str:
    return render_template(
        "agent/ledger.html",
        agent=agent,
        kind=wanted.kind,
        tag=wanted.tag,
        locked=wanted.locked,
        tags=TAGS,
        kept=agent.ledger.composition(clock.now()),
        grant=granted.under(agent.id),
        max_searched=granted.MAX_SEARCHED_CHARACTERS,
        **shown,
    )


def _settings_page(agent: Agent, error: str | None = None, opened: Any = None) -> str:
    return render_template(
        "agent/settings.html",
        agent=agent,
        error=error,
        form=request.form,
        opened=opened,
        prompts={name: agent.characters_of(name) for name in PROMPTS},
        last_changes=agent.last_prompt_changes(),
    )


class _Between(NamedTuple):
    """What an agent does between its sessions."""

    tasks: Sequence[MemoryTask]
    last_reflection: MemoryTask | None
    conversations_waiting: int

    @classmethod
    def of(cls, agent: Agent) -> "_Between":
        """Return the latest of it."""
        last = _tasks(agent).where(
            MemoryTask.kind == "reflection", MemoryTask.ended_at.is_not(None)
        )
        waiting = select(func.count()).where(
            MemoryTask.agent_id == agent.id,
            MemoryTask.kind == "extraction",
            MemoryTask.status == "queued",
        )
        return cls(
            tasks=db.session.scalars(_tasks(agent).limit(_TASKS_SHOWN)).all(),
            last_reflection=db.session.scalar(last.limit(1)),
            conversations_waiting=db.session.scalar(waiting) or 0,
        )


class _Wanted(NamedTuple):
    """Which memories a page is about."""

    kind: str
    tag: str
    locked: bool

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> "_Wanted":
        """Read it; what makes no sense counts as not asked for."""
        kind, tag = fields.get("kind", ""), fields.get("tag", "")
        return cls(
            kind=kind if kind in MEMORY_KINDS else "core",
            tag=tag if tag in TAGS else "",
            locked=bool(fields.get("locked")),
        )

    def query(self, agent: Agent) -> Select[AgentMemory]:
        """Return it as a query, newest first."""
        query = (
            select(AgentMemory)
            .where(AgentMemory.agent_id == agent.id, is_of_kind(self.kind, clock.now()))
            .order_by(AgentMemory.created_at.desc(), AgentMemory.id.desc())
        )
        if self.locked:
            query = query.where(AgentMemory.is_locked)
        if self.tag:
            query = query.where(AgentMemory.tags.contains([self.tag]))
        return query


def _memory_or_404(agent_id: int, memory_id: int) -> AgentMemory:
    agent = scope.agent_or_404(agent_id)
    memory = db.session.get(AgentMemory, memory_id) if memory_id < 2**63 else None
    if memory is None or memory.agent_id != agent.id:
        abort(404)
    return memory


def _back_to_ledger(agent_id: int) -> str:
    kind = request.form.get("kind", "core")
    page = request.form.get("page") or None
    return url_for("agent.ledger", agent_id=agent_id, kind=kind, page=page)


def _sessions(agent: Agent) -> list[RefinementSession]:
    return list(
        db.session.scalars(
            select(RefinementSession)
            .where(RefinementSession.agent_id == agent.id)
            .order_by(RefinementSession.created_at.desc())
            .limit(_SESSIONS_SHOWN)
        )
    )


def _tasks(agent: Agent) -> Select[MemoryTask]:
    return (
        select(MemoryTask)
        .where(MemoryTask.agent_id == agent.id)
        .order_by(MemoryTask.created_at.desc(), MemoryTask.id)
    )


def _moment(mass: Mass) -> Moment:
    is_undo = mass.action == "memory_refinement_rollback"
    mark = "undo" if is_undo else _MARKS.get(mass.action)
    return Moment(mass.at, mass.tokens, mark, mass.session_id)


def _share_removed(agent: Agent, tokens: int, days: int) -> int:
    """In percent of what there would be without it."""
    removed = RefinementSession.removed_recently(agent, window=timedelta(days=days))
    return round(100 * removed / (tokens + removed)) if tokens + removed else 0


def _known_model(agent: Agent, model_id: str) -> str:
    """The model, if the provider has it; where its list cannot be had, it is taken at its word."""
    model_id = model_id.strip()
    if model_id == agent.model_id:
        return model_id
    db.session.rollback()  # nothing is held while the provider is asked
    known = known_models(model_id, current_settings())
    if known is None:
        flash("The provider's list of models cannot be had now; the model was not checked.")
    elif model_id not in known:
        raise InvalidValue(f"model_id: the provider has no model {model_id[:100]!r} with tools")
    return model_id
