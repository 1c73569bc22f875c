"""One tool call is one transaction."""

from collections.abc import Callable

from refine.extensions import db
from refine.outages import NO_PATIENCE, Done, Patience, commit_once


def in_one_call(
    work: Callable[[], Done],
    patience: Patience = NO_PATIENCE,
    is_done: Callable[[], bool] | None = None,
) -> Done:
    """Commit what a tool call does, with ``commit_once``; undo it if it raises.

    What the caller left uncommitted is committed before.
    """
    if db.session().in_transaction():
        db.session.commit()
    return commit_once(work, patience, is_done)
