"""Verification in processes side by side; and the clock's, in slices between its other work."""

import os
import time
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from functools import partial
from multiprocessing import get_context

import structlog

from refine.extensions import db
from refine.models.audit.verification import ChainResult, Verification
from refine.models.integrity import (
    note_verified,
    problems_outside_chains,
    verify_chains,
    verify_next,
    without_empty,
)

# By default one for each processor; each takes a connection.
PROCESSES = min(os.cpu_count() or 1, 4)

_log = structlog.get_logger(__name__)


def verify_in_processes(
    batches: Iterable[Collection[int]], processes: int, *, in_full: bool
) -> Iterator[ChainResult]:
    """Verify these chains, a batch of ids at a time, in so many processes side by side.

    Threads would wait for each other: most of the time goes into Python itself. The processes are
    forked at once, before the caller starts any thread.
    """
    listed = list(batches)
    db.session.commit()  # a fork would share the connection
    pool = ProcessPoolExecutor(processes, get_context("fork"), _leave_connections)
    return _gathered(pool, pool.map(partial(verify_chains, in_full=in_full), listed))


def _leave_connections() -> None:
    """Leave the connections in the pool to the process that opened them."""
    db.engine.dispose(close=False)


def _gathered(
    pool: ProcessPoolExecutor, verified: Iterator[list[ChainResult]]
) -> Iterator[ChainResult]:
    with pool:
        for results in verified:
            yield from without_empty(results)


def verify_slice(at: datetime, deadline: float) -> None:
    """Verify at least a few chains of today, and more until ``deadline`` (by ``time.monotonic``).

    They are verified in short transactions, and counted in one of their own. If two
    clocks verify the same chains, only one counts.
    """
    due = Verification.due(at)
    db.session.commit()
    while due is not None and due.ended_at is None:
        _verify_next(due, at)
        if time.monotonic() >= deadline:
            break


def _verify_next(verification: Verification, at: datetime) -> None:
    after, in_full = verification.after_chain_id, not verification.goes_on
    db.session.commit()
    results = verify_next(after, in_full=in_full)
    last_id = results[-1].chain_id if results else None
    results = results or list(problems_outside_chains())
    db.session.commit()
    db.session.refresh(verification, with_for_update=True)
    if verification.after_chain_id == after and verification.ended_at is None:
        _store(verification, results, last_id, at)
    db.session.commit()


def _store(
    verification: Verification, results: list[ChainResult], last_id: int | None, at: datetime
) -> None:
    verification.add(results)
    note_verified(*results)
    for result in results:
        if result.problem is not None:
            _log.error("verification failed", chain=result.name, problem=result.problem)
    if last_id is None:
        verification.end(at)
    else:
        verification.after_chain_id = last_id
