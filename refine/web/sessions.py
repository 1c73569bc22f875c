"""Sessions: a list, and each one, live while it runs."""

import uuid

from flask import Blueprint, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import select
from sqlalchemy.orm import contains_eager

from refine.errors import Refused
from refine.extensions import db
from refine.models import MAX_MUTATIONS, Agent, AuditLog, RefinementSession
from refine.models.ledger.history import effect_tokens
from refine.models.runs.run import LIVE
from refine.models.runs.session.state import ENDED
from refine.refinement import time_machine
from refine.refinement.time_machine import UndoConflict
from refine.web import granted, scope
from refine.web.days import day_of, midnight
from refine.web.paging import page_of
from refine.web.words import TRIGGERS

pages = Blueprint("sessions", __name__)

_STATUSES = (*LIVE, *ENDED)
_STEPS_SHOWN = 100


@pages.get("/sessions")
def listing() -> str:
    """All sessions, newest first."""
    query = (
        select(RefinementSession)
        .join(RefinementSession.agent)
        .options(contains_eager(RefinementSession.agent))
        .where(Agent.account_id.in_(scope.account_ids()))
        .order_by(RefinementSession.created_at.desc(), RefinementSession.id)
    )
    status, trigger = request.args.get("status", ""), request.args.get("trigger", "")
    if status in _STATUSES:
        query = query.where(RefinementSession.status == status)
    if trigger in TRIGGERS:
        query = query.where(RefinementSession.trigger == trigger)
    if (since := day_of(request.args.get("since", ""))) is not None:
        query = query.where(RefinementSession.created_at >= midnight(since))
    if request.args.get("lost"):
        query = query.where(RefinementSession.error_kind == "worker_lost")
    if (agent := scope.chosen_agent()) is not None:
        query = query.where(RefinementSession.agent_id == agent.id)
    page = page_of(query)
    return render_template(
        "sessions/listing.html",
        page=page,
        sessions=[row[0] for row in page.rows],
        status=status if status in _STATUSES else "",
        trigger=trigger if trigger in TRIGGERS else "",
        lost=bool(request.args.get("lost")),
        since=since,
        agent=agent,
        statuses=_STATUSES,
    )


@pages.get("/sessions/<uuid:session_id>")
def page(session_id: uuid.UUID) -> str:
    """One session: its steps and figures; while it runs, the page keeps itself fresh."""
    session = scope.session_or_404(session_id)
    # read before the rest, as reading commits; a live session has said nothing yet
    opened = None if session.is_live else granted.session(session.agent_id, session_id)
    return render_template("sessions/page.html", **_shown(session_id), opened=opened)


@pages.get("/sessions/<uuid:session_id>/_live")
def live(session_id: uuid.UUID) -> str:
    """The part of the page that changes while the session runs."""
    return render_template("sessions/_live.html", **_shown(session_id))


@pages.post("/sessions/<uuid:session_id>/stop")
@scope.acting
def stop(session_id: uuid.UUID) -> ResponseReturnValue:
    """Ask the session to stop before its next step."""
    session = scope.session_or_404(session_id)
    try:
        session.request_stop(scope.user())
        db.session.commit()
        flash("The session was asked to stop: it ends before its next step. What was done stays.")
    except Refused as refusal:
        db.session.rollback()
        flash(f"{str(refusal).capitalize()}.")
    return redirect(url_for("sessions.page", session_id=session_id), 303)


@pages.get("/sessions/<uuid:session_id>/undo")
@scope.acting
def undo_form(session_id: uuid.UUID) -> ResponseReturnValue:
    """What an undo would change, before anything is changed."""
    return _undo_page(session_id, and_after=bool(request.args.get("and_after")))


@pages.post("/sessions/<uuid:session_id>/undo")
@scope.acting
def undo(session_id: uuid.UUID) -> ResponseReturnValue:
    """Undo the session, or it and everything after it; changes nothing where something is in the
    way."""
    session = scope.session_or_404(session_id)
    and_after = request.form.get("and_after") == "1"
    try:
        done = time_machine.undo(
            session, through="dashboard", user=scope.user(), and_after=and_after
        )
    except Refused:
        db.session.rollback()
        return _undo_page(session_id, and_after=and_after)
    if done.is_done:
        flash(f"Nothing was changed: {session.undone_by_label} had undone this session before.")
    else:
        flash(f"Undone: {done.effect}.")
    db.session.commit()
    return redirect(url_for("sessions.page", session_id=session_id), 303)


def _undo_page(session_id: uuid.UUID, *, and_after: bool) -> ResponseReturnValue:
    session = scope.session_or_404(session_id)
    planned, refusal = None, None
    try:
        planned = time_machine.preview(session, and_after=and_after)
    except Refused as error:
        refusal = error
    page = render_template(
        "sessions/undo.html",
        session=session,
        agent=session.agent,
        planned=planned,
        and_after=and_after,
        refusal=refusal,
        conflict=refusal if isinstance(refusal, UndoConflict) else None,
    )
    db.session.rollback()
    return page, 409 if refusal is not None else 200


def _shown(session_id: uuid.UUID) -> dict[str, object]:
    session = scope.session_or_404(session_id)
    records = db.session.scalars(
        select(AuditLog)
        .where(AuditLog.session_id == session.id)
        .order_by(AuditLog.sequence.desc())
        .limit(_STEPS_SHOWN + 1)
    ).all()
    return {
        "session": session,
        "agent": session.agent,
        "steps": records[_STEPS_SHOWN - 1 :: -1],
        "has_earlier_steps": len(records) > _STEPS_SHOWN,
        "max_mutations": MAX_MUTATIONS,
        "effect_tokens": effect_tokens,
    }
