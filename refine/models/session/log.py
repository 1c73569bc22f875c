"""One log line for each session that ended, once that is committed: ids and figures, no content."""

from typing import Any

import structlog
from sqlalchemy import event
from sqlalchemy.orm import Session

from refine.extensions import db

_log = structlog.get_logger(__name__)
_KEY = "refine.ended_sessions"


def say_when_committed(facts: dict[str, Any]) -> None:
    """Have a session's facts logged when the present transaction is committed, and not before."""
    db.session().info.setdefault(_KEY, []).append(facts)


@event.listens_for(Session, "after_commit")
def _say(session: Session) -> None:
    if session.in_nested_transaction():  # a savepoint: nothing is committed yet
        return
    for facts in session.info.pop(_KEY, []):
        _log.info("session ended", **facts)


@event.listens_for(Session, "after_soft_rollback")
def _forget(session: Session, _transaction: Any) -> None:
    session.info.pop(_KEY, None)
