"""Operations: health checks, running work, and failures by reason."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from flask import Blueprint, current_app, render_template
from sqlalchemy import ColumnElement, Select, func, literal, select, union_all

from refine import clock
from refine.extensions import db
from refine.health import Check, checks, clock_check, older_keys_check, queue_check, schedule_check
from refine.models import MemoryTask, RefinementSession
from refine.models.runs.run import LIVE
from refine.web import scope

pages = Blueprint("ops", __name__)

_FAILURES_OF = timedelta(days=30)
_SHOWN = 20
# A task that waits for a retry keeps the kind of its last error, but has not ended.
_HAS_FAILED = MemoryTask.ended_at.is_not(None) & MemoryTask.error_kind.is_not(None)


class Failures(NamedTuple):
    """How many runs ended with one kind of error, and when the last of them did."""

    kind: str
    sessions: int
    reflections: int
    conversations: int
    last: datetime


@pages.get("/ops")
def page() -> str:
    """Show health, running work and failures; platform checks only to site admins."""
    ids = scope.account_ids()
    return render_template(
        "ops/page.html",
        checks=_checks(),
        live=_latest(RefinementSession, RefinementSession.status.in_(LIVE)),
        live_tasks=_latest(MemoryTask, MemoryTask.status.in_(LIVE)),
        failures=_failures(ids),
        failed=_latest(
            RefinementSession,
            RefinementSession.status.in_(("failed", "incomplete")),
            RefinementSession.error_kind.is_not(None),
        ),
        failed_tasks=_latest(MemoryTask, _HAS_FAILED),
    )


def _checks() -> list[Check]:
    found = [queue_check(scope.account_ids()), clock_check()]
    if scope.user().site_admin:
        found = [*checks(current_app), older_keys_check(), schedule_check(), *found]
    return found


def _latest(model: type[scope.Held], *conditions: ColumnElement[bool]) -> Sequence[scope.Held]:
    return db.session.scalars(scope.recent(model, *conditions).limit(_SHOWN)).all()


def _failures(ids: Select[int]) -> list[Failures]:
    """Count the failures of the last 30 days by kind, the most frequent first."""
    since = clock.now() - _FAILURES_OF
    of_sessions = select(
        RefinementSession.error_kind.label("kind"),
        literal("session").label("of"),
        RefinementSession.ended_at.label("at"),
    ).where(
        RefinementSession.in_accounts(ids),
        RefinementSession.error_kind.is_not(None),
        RefinementSession.created_at > since,
    )
    of_tasks = select(MemoryTask.error_kind, MemoryTask.kind, MemoryTask.ended_at).where(
        MemoryTask.in_accounts(ids), _HAS_FAILED, MemoryTask.created_at > since
    )
    each = union_all(of_sessions, of_tasks).subquery()
    counts = [
        func.count().filter(each.c.of == of) for of in ("session", "reflection", "extraction")
    ]
    counted = select(each.c.kind, *counts, func.max(each.c.at)).group_by(each.c.kind)
    rows = db.session.execute(counted.order_by(func.count().desc(), each.c.kind))
    return [Failures(*row) for row in rows]
