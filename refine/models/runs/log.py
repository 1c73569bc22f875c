"""One log line for each run that ends, written after the commit; never content."""

from typing import Any

import structlog
from sqlalchemy import event
from sqlalchemy.orm import Session

from refine.extensions import db

_log = structlog.get_logger(__name__)
_PENDING = "refine.log_lines"


def log_after_commit(message: str, facts: dict[str, Any]) -> None:
    """Log this when the current transaction commits; drop it when that rolls back."""
    db.session().info.setdefault(_PENDING, []).append((message, facts))


@event.listens_for(Session, "after_commit")
def _log_pending(session: Session) -> None:
    if session.in_nested_transaction():  # a savepoint: nothing is committed yet
        return
    for message, facts in session.info.pop(_PENDING, []):
        _log.info(message, **facts)


@event.listens_for(Session, "after_soft_rollback")
def _drop_pending(session: Session, _transaction: Any) -> None:
    session.info.pop(_PENDING, None)
