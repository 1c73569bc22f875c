"""The daily verification of everything, in slices between the clock's other work."""

import time
from datetime import datetime

import structlog

from refine.extensions import db
from refine.models.audit.verification import ChainResult, Verification
from refine.models.integrity import note_verified, problems_outside_chains, verify_next

_log = structlog.get_logger(__name__)


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
