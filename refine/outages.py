"""Outages of the database: which faults pass by themselves, and how a transaction outlives one."""

import math
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from refine.database_errors import database_trouble
from refine.extensions import db, safe_rollback

# How soon a transaction that failed is retried.
PAUSE_SECONDS = 0.5
# How long the end of a run is still tried to be written once its process was asked to stop: its
# worker kills it after eight seconds.
STOPPING_SECONDS = 5.0

Done = TypeVar("Done")


def may_pass(fault: BaseException) -> bool:
    """Tell whether the same transaction may succeed later: the database is away, busy or full."""
    return isinstance(fault, DBAPIError) and database_trouble(fault) is not None


class RetryPolicy:
    """How long a transaction is retried: up to ``until``, by ``time.monotonic``.

    Once the process ``is_stopping``, only for a few more seconds.
    """

    def __init__(
        self, until: float = math.inf, is_stopping: Callable[[], bool] = lambda: False
    ) -> None:
        self._until = until
        self._is_stopping = is_stopping
        self._is_short = False

    def wait(self) -> bool:
        """Wait a moment; tell whether to retry."""
        if not self._is_short and self._is_stopping():
            self._is_short = True
            self._until = min(self._until, time.monotonic() + STOPPING_SECONDS)
        if time.monotonic() >= self._until:
            return False
        time.sleep(PAUSE_SECONDS)
        return True


NO_RETRY = RetryPolicy(until=-math.inf)


def commit_once(
    work: Callable[[], Done],
    retry: RetryPolicy = NO_RETRY,
    is_done: Callable[[], bool] | None = None,
) -> Done:
    """Do the work and commit it, as one transaction; again if that failed by an outage.

    If the answer to a commit was lost, ``is_done`` tells whether it was made; None: the work may be
    repeated. It locks what the work locks, and so waits for a commit that is still under way.
    Whatever raises undoes the work.
    """
    while True:
        try:
            done = work()
        except BaseException as fault:
            _retry_or_raise(fault, retry)
            continue
        try:
            db.session.commit()
        except BaseException as fault:
            _retry_or_raise(fault, retry)
            if is_done is None or not commit_once(is_done, retry):
                continue
        return done


def _retry_or_raise(fault: BaseException, retry: RetryPolicy) -> None:
    """Undo what failed; raise the fault if it will not pass, or if nobody waits any longer."""
    safe_rollback()
    if not (may_pass(fault) and retry.wait()):
        raise fault
