"""One tool call is one transaction."""

from collections.abc import Callable

from refine.extensions import db
from refine.outages import NO_RETRY, Done, RetryPolicy, commit_once


def in_one_call(
    work: Callable[[], Done],
    retry: RetryPolicy = NO_RETRY,
    is_done: Callable[[], bool] | None = None,
) -> Done:
    """Commit what a tool call does, with ``commit_once``; undo it if it raises.

    What the caller left uncommitted is committed before.
    """
    if db.session().in_transaction():
        db.session.commit()
    return commit_once(work, retry, is_done)
