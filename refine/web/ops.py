"""Operations: queue, workers, clock, and what failed, and why."""

from datetime import timedelta
from typing import Any

from flask import Blueprint, current_app, render_template
from sqlalchemy import func, select
from sqlalchemy.orm import contains_eager

from refine import clock
from refine.extensions import db
from refine.health import Check, checks, clock_check, older_keys_check, queue_check, schedule_check
from refine.models import Agent, RefinementSession
from refine.models.run import LIVE
from refine.web import scope

pages = Blueprint("ops", __name__)

_FAILURES_OF = timedelta(days=30)
_SHOWN = 20


@pages.get("/ops")
def page() -> str:
    """The whole platform for site admins; for others what concerns their account."""
    ids = scope.account_ids()
    return render_template(
        "ops/page.html",
        checks=_checks(),
        live=_sessions(RefinementSession.status.in_(LIVE)),
        failures=_failures(ids),
        failed=_sessions(
            RefinementSession.status.in_(("failed", "incomplete"))
            & RefinementSession.error_kind.is_not(None)
        ),
    )


def _checks() -> list[Check]:
    found = [queue_check(scope.account_ids()), clock_check()]
    if scope.user().site_admin:
        found = [*checks(current_app), older_keys_check(), schedule_check(), *found]
    return found


def _sessions(wanted: Any) -> list[RefinementSession]:
    return list(
        db.session.scalars(
            select(RefinementSession)
            .join(RefinementSession.agent)
            .options(contains_eager(RefinementSession.agent))
            .where(wanted, Agent.account_id.in_(scope.account_ids()))
            .order_by(RefinementSession.created_at.desc())
            .limit(_SHOWN)
        )
    )


def _failures(ids: Any) -> list[Any]:
    """Kinds of errors of the last 30 days: how many sessions, and the last of each."""
    return list(
        db.session.execute(
            select(
                RefinementSession.error_kind,
                func.count(),
                func.max(RefinementSession.ended_at),
            )
            .where(
                RefinementSession.in_accounts(ids),
                RefinementSession.error_kind.is_not(None),
                RefinementSession.created_at > clock.now() - _FAILURES_OF,
            )
            .group_by(RefinementSession.error_kind)
            .order_by(func.count().desc())
        )
    )
