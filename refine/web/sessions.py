"""Sessions: the list, and a page for each, which is live while the session runs."""

import uuid
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any, NamedTuple

from flask import Blueprint, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import ColumnExpressionArgument, Select, select

from refine.errors import Refused
from refine.extensions import db
from refine.faults import as_sentence, status_of
from refine.models import MAX_MUTATIONS, Agent, AuditLog, RefinementSession
from refine.models.runs import LIVE, WORKER_LOST
from refine.models.runs.session.state import ENDED
from refine.refinement import time_machine
from refine.refinement.time_machine import UndoConflict
from refine.rules.pacing import MAX_RETRIES
from refine.web import granted, in_place, scope, timeline
from refine.web.formatting import spaced
from refine.web.forms import day_of, instant_of, midnight
from refine.web.links import url_in_account
from refine.web.paging import page_of
from refine.web.words import STATUSES, TRIGGERS

pages = Blueprint("sessions", __name__)

_STATUSES = (*LIVE, *ENDED)
_STEPS_SHOWN = 100
_LISTED = (
    RefinementSession.id,
    RefinementSession.agent_id,
    Agent.name.label("agent_name"),
    RefinementSession.status,
    RefinementSession.trigger,
    RefinementSession.end_reason,
    RefinementSession.mass_before,
    RefinementSession.removed_tokens,
    RefinementSession.mutation_count,
    RefinementSession.created_at,
    RefinementSession.started_at,
    RefinementSession.undone_at,
)


class SessionFilter(NamedTuple):
    status: str
    trigger: str
    since: date | None
    error: str
    slot: datetime | None
    agent: Agent | None

    @classmethod
    def of_request(cls) -> "SessionFilter":
        """Read the filter from the URL; invalid values are ignored."""
        args = request.args
        return cls(
            status=args.get("status", "") if args.get("status") in _STATUSES else "",
            trigger=args.get("trigger", "") if args.get("trigger") in TRIGGERS else "",
            since=day_of(args.get("since", "")),
            error=args.get("error", "").strip(),
            slot=instant_of(args.get("slot", "")),
            agent=scope.chosen_agent(),
        )

    @property
    def is_narrowed(self) -> bool:
        return any(self)

    def query(self) -> Select[*tuple[Any, ...]]:
        query = listed()
        if self.status:
            query = query.where(RefinementSession.status == self.status)
        if self.trigger:
            query = query.where(RefinementSession.trigger == self.trigger)
        if self.since is not None:
            query = query.where(RefinementSession.created_at >= midnight(self.since))
        if self.error:
            query = query.where(RefinementSession.error_kind == self.error)
        if self.slot is not None:
            query = query.where(RefinementSession.is_for_slot(self.slot))
        if self.agent is not None:
            query = query.where(RefinementSession.agent_id == self.agent.id)
        return query


def listed(*conditions: ColumnExpressionArgument[bool]) -> Select[*tuple[Any, ...]]:
    """Return a query for what lists show of this page's sessions, newest first: plain columns."""
    return (
        select(*_LISTED)
        .join(RefinementSession.agent)
        .where(scope.owns(Agent.account_id), *conditions)
        .order_by(RefinementSession.created_at.desc(), RefinementSession.id)
    )


@pages.get("/sessions")
def listing() -> str:
    chosen = SessionFilter.of_request()
    page = page_of(chosen.query())
    return render_template(
        "sessions/listing.html",
        page=page,
        sessions=page.rows,
        filter=chosen,
        agent=chosen.agent,
        statuses=[(status, STATUSES[status].word) for status in _STATUSES],
        errors=[(kind, spaced(kind)) for kind in sorted({WORKER_LOST, chosen.error} - {""})],
        refresh_seconds=in_place.seconds_while(any(each.status in LIVE for each in page.rows)),
    )


@pages.get("/sessions/<uuid:session_id>")
def page(session_id: uuid.UUID) -> str:
    """Show a session's steps and figures; while it runs, the page updates automatically."""
    session = scope.session_or_404(session_id)
    agent_id, opened = session.agent_id, None
    # opened first, as reading commits; a live session has nothing to open yet
    if not session.is_live:
        opened = granted.session(agent_id, session_id)
    return render_template("sessions/page.html", **_context(session_id), opened=opened)


@pages.post("/sessions/<uuid:session_id>/stop")
@scope.admins_only
def stop(session_id: uuid.UUID) -> ResponseReturnValue:
    session = scope.session_or_404(session_id)
    try:
        session.request_stop(scope.user())
        db.session.commit()
        flash("Stop requested: the session ends before its next step. Changes so far are kept.")
    except Refused as refusal:
        db.session.rollback()
        flash(as_sentence(str(refusal)))
    return redirect(url_for("sessions.page", session_id=session_id), 303)


@pages.post("/sessions/<uuid:session_id>/seen")
@scope.admins_only
def acknowledge(session_id: uuid.UUID) -> ResponseReturnValue:
    session = scope.session_or_404(session_id)
    try:
        session.acknowledge(scope.user())
        db.session.commit()
        flash(f"Acknowledged: the last session of {session.agent.name}.")
    except Refused as refusal:
        db.session.rollback()
        flash(as_sentence(str(refusal)))
    if request.form.get("from") == "overview":
        return redirect(url_in_account("overview.page"), 303)
    return redirect(url_for("sessions.page", session_id=session_id), 303)


@pages.get("/sessions/<uuid:session_id>/undo")
@scope.admins_only
def undo_form(session_id: uuid.UUID) -> ResponseReturnValue:
    return _undo_page(session_id, and_after=bool(request.args.get("and_after")))


@pages.post("/sessions/<uuid:session_id>/undo")
@scope.admins_only
def undo(session_id: uuid.UUID) -> ResponseReturnValue:
    """Undo the session, alone or with everything after it; a conflict changes nothing."""
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
        flash(f"Nothing was changed: {session.undone_by_label} already undid this session.")
    else:
        flash(f"Undone: {done.effect}.")
    db.session.commit()
    return redirect(url_for("sessions.page", session_id=session_id), 303)


def _undo_page(session_id: uuid.UUID, *, and_after: bool) -> ResponseReturnValue:
    """Show what an undo would do, or why it is refused; nothing is changed."""
    session = scope.session_or_404(session_id)
    agent = session.agent  # kept here, or the page would load it again after the preview
    planned, refusal = None, None
    try:
        planned = time_machine.preview(session, and_after=and_after)
    except Refused as error:
        refusal = error
    page = render_template(
        "sessions/undo.html",
        session=session,
        agent=agent,
        and_after=and_after,
        planned=planned,
        refusal=refusal,
        conflict=refusal if isinstance(refusal, UndoConflict) else None,
    )
    return page, status_of(refusal) if refusal is not None else 200


def _context(session_id: uuid.UUID) -> dict[str, object]:
    session = scope.session_or_404(session_id)
    records = _last_records(session_id)
    return {
        "session": session,
        "refresh_seconds": in_place.WATCHED_SECONDS if session.is_live else None,
        "agent": session.agent,
        "steps": timeline.steps(session, records[:_STEPS_SHOWN][::-1]),
        "steps_shown": _STEPS_SHOWN,
        "has_earlier_steps": len(records) > _STEPS_SHOWN,
        "max_mutations": MAX_MUTATIONS,
        "max_attempts": MAX_RETRIES + 1,
    }


def _last_records(session_id: uuid.UUID) -> Sequence[AuditLog]:
    """Return the session's last records, newest first: one more than its page shows."""
    return db.session.scalars(
        select(AuditLog)
        .where(AuditLog.session_id == session_id)
        .order_by(AuditLog.sequence.desc())
        .limit(_STEPS_SHOWN + 1)
    ).all()
