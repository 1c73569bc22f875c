"""One log line for each session or memory task that ended, once committed: no content."""

from typing import Any

import structlog
from sqlalchemy import event
from sqlalchemy.orm import Session

from refine.extensions import db

_log = structlog.get_logger(__name__)
_KEY = "refine.ended"


def say_when_committed(facts: dict[str, Any], said: str = "session ended") -> None:
    """Have these facts logged when the present transaction is committed, and not before."""
    db.session().info.setdefault(_KEY, []).append((said, facts))


@event.listens_for(Session, "after_commit")
def _say(session: Session) -> None:
    if session.in_nested_transaction():  # a savepoint: nothing is committed yet
        return
    for said, facts in session.info.pop(_KEY, []):
        _log.info(said, **facts)


@event.listens_for(Session, "after_soft_rollback")
def _forget(session: Session, _transaction: Any) -> None:
    session.info.pop(_KEY, None)
