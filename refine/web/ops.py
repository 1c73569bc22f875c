"""Operations: health checks, running work, and failures by kind of error."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast

from flask import Blueprint, Flask, current_app, flash, g, redirect, render_template, url_for
from sqlalchemy import ColumnExpressionArgument, func, literal, select, union_all
from werkzeug.wrappers import Response

from refine import clock
from refine.extensions import db
from refine.health import (
    Check,
    checks,
    clock_check,
    older_keys_check,
    queue_check,
    schedule_check,
    verification_check,
)
from refine.models import MemoryTask, RefinementSession, Verification
from refine.models.audit.verification import Alarm
from refine.web import in_place, scope
from refine.web.charts import DAYS_SHOWN
from refine.web.sessions import listed

pages = Blueprint("ops", __name__)

_SHOWN = 20


class Failures(NamedTuple):
    """How many runs ended with one kind of error, and when the last of them did."""

    kind: str
    sessions: int
    reflections: int
    conversations: int
    last: datetime


@pages.get("/ops")
def page() -> str:
    """Show health, running work and failures; checks of the installation only to site admins."""
    health = _checks()  # first: some end the transaction
    live, live_tasks = _sessions(RefinementSession.is_live), _tasks(MemoryTask.is_live)
    return render_template(
        "ops/page.html",
        checks=health,
        live=live,
        live_tasks=live_tasks,
        refresh_seconds=in_place.seconds_while(live or live_tasks),
        failures=_failures(),
        failed=_sessions(RefinementSession.has_ended_with_error()),
        failed_tasks=_tasks(MemoryTask.has_ended_with_error()),
    )


@pages.post("/ops/verification/seen")
@scope.site_admins_only
@scope.admins_only
def see_verification() -> Response:
    """Acknowledge the failed and the altered verifications."""
    Verification.acknowledge_all(user=scope.user(), at=clock.now())
    db.session.commit()
    flash("Noted. The alarm ends once a later verification finds nothing wrong.")
    return redirect(url_for("ops.page"), 303)


def register(app: Flask) -> None:
    """Give every page the alarm about verifications, looked up once."""
    app.context_processor(lambda: {"verification_alarm": _alarm})


def _alarm() -> Alarm | None:
    if "verification_alarm" not in g:
        g.verification_alarm = Verification.alarm()
    return cast(Alarm | None, g.verification_alarm)


def _checks() -> list[Check]:
    found = [queue_check(scope.account_id()), clock_check()]
    if scope.user().site_admin:
        found = [
            *checks(current_app),
            older_keys_check(),
            verification_check(_alarm),
            schedule_check(),
            *found,
        ]
    return found


def _sessions(*conditions: ColumnExpressionArgument[bool]) -> Sequence[Any]:
    return db.session.execute(listed(*conditions).limit(_SHOWN)).all()


def _tasks(*conditions: ColumnExpressionArgument[bool]) -> Sequence[MemoryTask]:
    return db.session.scalars(scope.recent(MemoryTask, *conditions).limit(_SHOWN)).all()


def _failures() -> list[Failures]:
    """Count recent failures by kind, the most frequent first."""
    since, account_id = clock.now() - timedelta(days=DAYS_SHOWN), scope.account_id()
    of_sessions = select(
        RefinementSession.error_kind.label("kind"),
        literal("session").label("of"),
        RefinementSession.ended_at.label("at"),
    ).where(
        RefinementSession.in_account(account_id),
        RefinementSession.has_ended_with_error(),
        RefinementSession.created_at > since,
    )
    of_tasks = select(MemoryTask.error_kind, MemoryTask.kind, MemoryTask.ended_at).where(
        MemoryTask.in_account(account_id),
        MemoryTask.has_ended_with_error(),
        MemoryTask.created_at > since,
    )
    each = union_all(of_sessions, of_tasks).subquery()
    counts = [
        func.count().filter(each.c.of == of) for of in ("session", "reflection", "extraction")
    ]
    counted = select(each.c.kind, *counts, func.max(each.c.at)).group_by(each.c.kind)
    rows = db.session.execute(counted.order_by(func.count().desc(), each.c.kind))
    return [Failures(*row) for row in rows]
