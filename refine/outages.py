"""PostgreSQL's errors by SQLSTATE, as texts may quote rows, and retries of transactions."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Literal, TypeVar

from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from refine.diagnoses import Finding, cause_of
from refine.extensions import db, safe_rollback

# busy: rows were locked by others, or too much was going on; full: disk or memory
Trouble = Literal["away", "busy", "full"]

# The messages for people and programs, with remedies.
TROUBLES: Mapping[Trouble, str] = {
    "away": "Nothing was lost. Try again in a moment.",
    "busy": "Another request is changing the same rows, or the database is overloaded. Nothing was "
    "changed. Try again in a moment.",
    "full": "The database is out of disk space or memory. Nothing was changed. Refine resumes as "
    "soon as an operator has freed some.",
}

_BUSY = frozenset(
    {
        "55P03",  # a lock was waited for in vain
        "40P01",  # deadlock
        "40001",  # serialization failure
        "57014",  # the statement took too long
        "53300",  # too many connections
        "0A000",  # prepared before a migration changed the type of a column
        *("25P03", "25P04"),  # the transaction was idle, or went on, for too long
    }
)
_FULL = frozenset({"53100", "53200"})  # disk full, out of memory

# How soon a transaction that failed is retried.
PAUSE_SECONDS = 0.5
# How long the end of a run is still tried to be written once its process was asked to stop: its
# worker kills it after eight seconds.
STOPPING_SECONDS = 5.0

Done = TypeVar("Done")


def database_trouble(error: DBAPIError) -> Trouble | None:
    """Return what keeps the database from doing it at the moment; None for any other error."""
    sqlstate = getattr(error.orig, "sqlstate", None)
    if sqlstate in _BUSY:
        return "busy"
    if sqlstate in _FULL:
        return "full"
    # failed connections have no SQLSTATE; 08 and 57P are for broken ones
    is_broken = isinstance(error, OperationalError) and (sqlstate or "08").startswith(("08", "57P"))
    return "away" if is_broken or error.connection_invalidated else None


def connection_fault(error: SQLAlchemyError) -> Finding:
    """Return why the database cannot be reached, without a word that it says itself."""
    original = getattr(error, "orig", None)
    code = cause_of("database", str(original), getattr(original, "sqlstate", None))
    return Finding.of(code or "database_away")


def may_pass(fault: BaseException) -> bool:
    return isinstance(fault, DBAPIError) and database_trouble(fault) is not None


class RetryPolicy:
    """Retry until a ``time.monotonic`` instant; a few seconds more once the process stops."""

    def __init__(
        self, until: float = math.inf, is_stopping: Callable[[], bool] = lambda: False
    ) -> None:
        self._until = until
        self._is_stopping = is_stopping
        self._is_short = False

    def wait(self) -> bool:
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


def in_one_call(
    work: Callable[[], Done],
    retry: RetryPolicy = NO_RETRY,
    is_done: Callable[[], bool] | None = None,
) -> Done:
    """Commit a tool call with ``commit_once``; what was open before is committed by itself."""
    if db.session().in_transaction():
        db.session.commit()
    return commit_once(work, retry, is_done)


def _retry_or_raise(fault: BaseException, retry: RetryPolicy) -> None:
    safe_rollback()
    if not (may_pass(fault) and retry.wait()):
        raise fault
