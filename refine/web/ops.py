"""Operations: health checks, running work, and failures by kind of error."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from flask import render_template, request, url_for
from sqlalchemy import SQLColumnExpression, func, literal, select, union_all
from sqlalchemy.orm import joinedload
from werkzeug.wrappers import Response

from refine import clock, health, settings
from refine.extensions import db
from refine.health import Check
from refine.models import Mail, MemoryTask, RefinementSession, Verification
from refine.web import in_place, scope
from refine.web.charts import DAYS_SHOWN
from refine.web.forms import done, midnight
from refine.web.sessions import RunKind, latest
from refine.web.templating import verification_watch

pages = scope.area("ops")

_SHOWN = 20


@pages.get("/ops")
def page() -> str:
    error = request.args.get("error", "").strip()
    since = midnight(clock.now().astimezone(scope.zone()).date(), -DAYS_SHOWN + 1)
    live = latest(_SHOWN, RefinementSession, RefinementSession.is_live)
    live_tasks = latest(_SHOWN, MemoryTask, MemoryTask.is_live)
    failures = _failures(since)
    return render_template(
        "ops/page.html",
        checks=_checks(),
        live=live,
        live_tasks=live_tasks,
        refresh_seconds=in_place.seconds_while(live or live_tasks),
        failures=failures,
        lost_mail=_lost_mail(),
        since=since.date(),
        error=error,
        # nothing to look for if none failed lately
        failed=_failed(RefinementSession, error) if failures else (),
        failed_tasks=_failed(MemoryTask, error) if failures else (),
    )


def _failed(kind: RunKind, error: str) -> Sequence[Any]:
    of_error = [kind.error_kind == error] if error else []
    return latest(_SHOWN, kind, kind.has_ended_with_error(), *of_error)


def _lost_mail() -> Sequence[Mail]:
    if settings.current().mail_url is None:
        return []
    mine = scope.in_scope(Mail.account_id), Mail.delivered_at.is_(None), Mail.attempts > 0
    lost = select(Mail).where(*mine).order_by(Mail.id.desc()).limit(_SHOWN)
    return db.session.scalars(lost.options(joinedload(Mail.user))).all()


@pages.post("/ops/verification/seen")
@scope.site_admins_only
@scope.admins_only
def see_verification() -> Response:
    Verification.acknowledge_all(user=scope.user(), at=clock.now())
    said = "Acknowledged. The alarm ends once a later verification finds nothing wrong."
    return done(said, url_for("ops.page"))


def _checks() -> list[Check]:
    queue = health.queue_check(scope.account_id())
    if not scope.user().site_admin:
        return [queue, health.clock_check()]
    return [
        *health.checks(),
        health.older_keys_check(),
        health.verification_check(verification_watch()),
        health.schedule_check(),
        queue,
        health.clock_check(),
        health.time_check(),
    ]


def _failures(since: datetime) -> Sequence[Any]:
    of_sessions = _failed_since(since, RefinementSession, literal("session"))
    each = union_all(of_sessions, _failed_since(since, MemoryTask, MemoryTask.kind)).subquery()
    names = {"session": "sessions", "reflection": "reflections", "extraction": "conversations"}
    names |= {"data_subject": "searches"}
    counts = [func.count().filter(each.c.of == of).label(name) for of, name in names.items()]
    counted = select(each.c.kind, *counts, func.max(each.c.at).label("last")).group_by(each.c.kind)
    return db.session.execute(counted.order_by(func.count().desc(), each.c.kind)).all()


def _failed_since(since: datetime, kind: RunKind, of: SQLColumnExpression[str]) -> Any:
    failed: Any = select(kind.error_kind.label("kind"), of.label("of"), kind.ended_at.label("at"))
    mine = kind.in_account(scope.account_id()), kind.created_at >= since
    return failed.where(kind.has_ended_with_error(), *mine)
