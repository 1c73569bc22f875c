"""Sessions: the list, and a page for each, with its steps, which is live while the session runs."""

import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from flask import Blueprint, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import ColumnExpressionArgument, Select, select

from refine.errors import Refused
from refine.extensions import db
from refine.faults import as_sentence, status_of
from refine.models import MAX_MUTATIONS, Agent, AuditLog, RefinementSession
from refine.models.ledger.history import effect_tokens
from refine.models.runs import LIVE, WORKER_LOST
from refine.models.runs.session.state import ENDED
from refine.refinement import time_machine
from refine.refinement.time_machine import UndoConflict
from refine.rules.pacing import MAX_RETRIES
from refine.web import granted, in_place, scope
from refine.web.audit.changes import changed_core_ids
from refine.web.formatting import day, minute, spaced
from refine.web.forms import day_of, instant_of, midnight
from refine.web.links import url_in_account
from refine.web.lists import Chosen, Filter, of_agent, one_of, page_of
from refine.web.words import STATUSES, TRIGGERS, action

pages = Blueprint("sessions", __name__)

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


def _errors(chosen: Chosen) -> dict[str, str]:
    return {kind: spaced(kind) for kind in sorted({WORKER_LOST, chosen["error"] or WORKER_LOST})}


_FILTERS = [
    of_agent(RefinementSession.agent_id),
    one_of(
        "status",
        "Outcome",
        {status: STATUSES[status].word for status in (*LIVE, *ENDED)},
        condition=lambda status: RefinementSession.status == status,
    ),
    one_of(
        "trigger",
        "Trigger",
        TRIGGERS,
        condition=lambda trigger: RefinementSession.trigger == trigger,
    ),
    Filter(
        "since",
        "Since",
        read=day_of,
        condition=lambda on: RefinementSession.created_at >= midnight(on),
        input="date",
        shown=lambda on: f"since {day(on)}",
    ),
    Filter(
        "error",
        "Error",
        read=lambda text: text or None,
        condition=lambda kind: RefinementSession.error_kind == kind,
        input="select",
        choices=_errors,
        shown=spaced,
    ),
    Filter(
        "slot",
        "Slot",
        read=instant_of,
        condition=RefinementSession.is_for_slot,
        shown=lambda at: f"slot of {minute(at)}",
    ),
]


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
    chosen = Chosen(_FILTERS)
    page = page_of(listed(*chosen.conditions()))
    return render_template(
        "sessions/listing.html",
        page=page,
        sessions=page.rows,
        chosen=chosen,
        agent=chosen["agent"],
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
        "steps": steps(session, records[:_STEPS_SHOWN][::-1]),
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


class Step(NamedTuple):
    """A step: a record, or an instant that the session's row keeps.

    ``since`` is how long it came after the one before, ``tokens`` by how many it changed the mass.
    """

    at: datetime
    what: str
    since: timedelta | None
    record: AuditLog | None
    memory_ids: Sequence[int]
    tokens: int | None


class _Moment(NamedTuple):
    at: datetime
    what: str
    record: AuditLog | None


def steps(session: RefinementSession, records: Sequence[AuditLog]) -> list[Step]:
    """Return the steps of a session from the first of these records on, oldest first."""
    moments = [_Moment(record.created_at, record.action, record) for record in records]
    begun = moments[0].at if moments else session.created_at
    of_row = [(session.started_at, "a worker began"), (session.consented_at, "the agent agreed")]
    in_row = [_Moment(at, what, None) for at, what in of_row if at is not None and at >= begun]
    # at one and the same time, the work follows the request and comes before the rest
    moments = sorted([*moments[:1], *in_row, *moments[1:]], key=lambda moment: moment.at)
    return list(_measured(moments))


def _measured(moments: Sequence[_Moment]) -> Iterator[Step]:
    before: datetime | None = None
    for at, what, record in moments:
        data: Any = record.data if record is not None else {}
        yield Step(
            at,
            action(what, data.get("operation", "")),
            at - before if before is not None else None,
            record,
            changed_core_ids(record) if record is not None else (),
            effect_tokens(data) if data.get("operation") else None,
        )
        before = at
