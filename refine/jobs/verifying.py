"""Verification in processes side by side; and the clock's, in slices between its other work."""

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from functools import partial
from multiprocessing import get_context

import structlog
from flask import current_app

from refine import create_app
from refine.extensions import db
from refine.models.audit.verification import ChainResult, Verification
from refine.models.integrity import (
    batches_of_chains,
    note_verified,
    problems_outside_chains,
    verify_chains,
    verify_next,
    without_empty,
)
from refine.settings import Settings

_log = structlog.get_logger(__name__)


def verify_in_processes(processes: int, *, in_full: bool) -> Iterator[ChainResult]:
    """Verify everything as ``verify_all`` does, in so many processes side by side.

    Threads would wait for each other: most of the time goes into Python itself.
    """
    settings = current_app.extensions["refine.settings"]
    spawn = get_context("spawn")  # a fork would share this process's connections
    with ProcessPoolExecutor(processes, spawn, _begin, (settings,)) as pool:
        for results in pool.map(partial(verify_chains, in_full=in_full), batches_of_chains()):
            yield from without_empty(results)
    yield from problems_outside_chains()


def _begin(settings: Settings) -> None:
    create_app(settings).app_context().push()


def verify_slice(at: datetime, deadline: float) -> None:
    """Verify at least a few chains of today, and more until ``deadline`` (by ``time.monotonic``).

    They are verified in short transactions, and counted in one of their own. Of two clocks that
    verify the same chains, one counts.
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
