"""Sessions and other runs as lists show them, and a session's page, live while it runs."""

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from flask import render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import ColumnExpressionArgument, Select, case, select
from sqlalchemy.orm import contains_eager

from refine.errors import Refused
from refine.extensions import db
from refine.faults import classify
from refine.models import (
    MAX_MUTATIONS,
    Agent,
    AuditLog,
    MemoryTask,
    RefinementSession,
    User,
)
from refine.models.attention import state_of
from refine.models.ledger.history import effect_tokens
from refine.models.runs.run import LIVE
from refine.models.runs.session.session import ENDED
from refine.refinement import time_machine
from refine.refinement.time_machine import UndoConflict
from refine.rules.causes import spaced
from refine.rules.pacing import MAX_RETRIES
from refine.web import granted, in_place, scope
from refine.web.forms import attempt, done, midnight
from refine.web.lists import Chosen, Filter, by_day, id_begins, of_agent, one_of, page_of, searched
from refine.web.picture import picture_of, sizes
from refine.web.presenting import is_rehearsed
from refine.web.record_changes import changed_core_ids
from refine.web.words import STATUSES, TRIGGERS

pages = scope.area("sessions")

_STEPS_SHOWN = 100

_OUTCOMES = {status: STATUSES[status].word for status in (*LIVE, *ENDED)}
FILTERS = [
    of_agent(RefinementSession.agent_id),
    searched(
        *(Agent.name, User.email, case(TRIGGERS, value=RefinementSession.trigger)),
        label="Agent, trigger, who asked or id",
        also=lambda text: id_begins(RefinementSession.id, text),
    ),
    one_of("status", "Outcome", _OUTCOMES, lambda word: RefinementSession.status == word),
    one_of("trigger", "Trigger", TRIGGERS, lambda word: RefinementSession.trigger == word),
    by_day("since", "Since", lambda on: RefinementSession.created_at >= midnight(on)),
    Filter(
        "error",
        "Error",
        read=lambda text: text or None,
        condition=lambda kind: RefinementSession.error_kind == kind,
        shown=spaced,
    ),
]


RunKind = type[RefinementSession] | type[MemoryTask]


def listed(kind: RunKind, *conditions: ColumnExpressionArgument[bool]) -> Select[Any]:
    """Select runs in scope, the latest first, with agent and account; sessions with who asked."""
    whole = [contains_eager(kind.agent).contains_eager(Agent.account)]
    found = select(kind).join(kind.agent).join(Agent.account)
    if kind is RefinementSession:
        found = found.outerjoin(RefinementSession.user)
        whole.append(contains_eager(RefinementSession.user))
    mine = found.options(*whole).where(scope.in_scope(Agent.account_id), *conditions)
    return mine.order_by(kind.created_at.desc(), kind.id)


def latest(
    number: int, kind: RunKind, *conditions: ColumnExpressionArgument[bool]
) -> Sequence[Any]:
    return db.session.scalars(listed(kind, *conditions).limit(number)).all()


@pages.get("/sessions")
def listing() -> str:
    chosen = Chosen(FILTERS)
    page = page_of(listed(RefinementSession, *chosen.conditions()), is_counted=True)
    sessions = [row[0] for row in page.rows]
    return render_template(
        "sessions/listing.html",
        page=page,
        sessions=sessions,
        chosen=chosen,
        refresh_seconds=in_place.seconds_while(any(each.is_live for each in sessions)),
    )


@pages.get("/sessions/<uuid:session_id>")
def page(session_id: uuid.UUID) -> str:
    session = scope.session_or_404(session_id)
    agent_id, opened = session.agent_id, None
    if session.is_live and is_rehearsed(session.agent):
        session.note_watched()
        db.session.commit()
    # opened first, as reading commits; a live session has nothing to open yet
    if not session.is_live:
        opened = granted.session(agent_id, session_id)
    return render_template(
        "sessions/page.html",
        **_context(session_id),
        opened=opened,
        grant=granted.active_grant_for(agent_id),
    )


@pages.post("/sessions/<uuid:session_id>/stop")
@scope.admins_only
def stop(session_id: uuid.UUID) -> ResponseReturnValue:
    session = scope.session_or_404(session_id)
    return attempt(
        lambda: session.request_stop(scope.user()),
        "Stop requested: the session ends before its next step. Changes so far are kept.",
        url_for("sessions.page", session_id=session_id),
    )


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
        undone = time_machine.undo(
            session, through="dashboard", user=scope.user(), and_after=and_after
        )
    except Refused:
        db.session.rollback()
        return _undo_page(session_id, and_after=and_after)
    said = f"Undone: {undone.effect}."
    if undone.is_done:
        said = f"Nothing was changed: {session.undone_by_label} already undid this session."
    return done(said, url_for("sessions.page", session_id=session_id))


def _undo_page(session_id: uuid.UUID, *, and_after: bool) -> ResponseReturnValue:
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
    return page, classify(refusal).status if refusal is not None else 200


def _context(session_id: uuid.UUID) -> dict[str, object]:
    mine = select(RefinementSession, sizes()).where(RefinementSession.id == session_id)
    with_agent = mine.join(RefinementSession.agent).options(contains_eager(RefinementSession.agent))
    session, untouched = db.session.execute(with_agent).one()
    is_last = session.id == session.agent.last_session_id
    newest = db.session.scalars(
        select(AuditLog)
        .where(AuditLog.session_id == session_id)
        .order_by(AuditLog.sequence.desc())
        .limit(_STEPS_SHOWN + 1)
    ).all()
    edited = [record for record in newest[::-1] if record.data.get("operation")]
    return {
        "session": session,
        "attention_to": state_of(session.agent) if is_last else None,
        "picture": picture_of(session, edited, untouched),
        "refresh_seconds": in_place.WATCHED_SECONDS if session.is_live else None,
        "agent": session.agent,
        "steps": [_step(record) for record in newest[:_STEPS_SHOWN][::-1]],
        "has_earlier_steps": len(newest) > _STEPS_SHOWN,
        "max_mutations": MAX_MUTATIONS,
        "max_attempts": MAX_RETRIES + 1,
    }


class Step(NamedTuple):
    record: AuditLog
    memory_ids: Sequence[int]
    tokens: int | None


def _step(record: AuditLog) -> Step:
    is_edit = bool(record.data.get("operation"))
    return Step(record, changed_core_ids(record), effect_tokens(record.data) if is_edit else None)
