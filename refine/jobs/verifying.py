"""The clock's daily verification, in slices between its other work."""

import time
from datetime import datetime

import structlog

from refine.extensions import db
from refine.models.audit.verification import Verification
from refine.models.integrity import (
    batches_of_chains,
    note_verified,
    problems_outside_chains,
    verify_chains,
)

_log = structlog.get_logger(__name__)


def verify_slice(at: datetime, deadline: float) -> None:
    """Verify at least a few chains of today, and more until ``deadline`` (``time.monotonic``)."""
    due = Verification.due(at)
    db.session.commit()
    while due is not None and due.ended_at is None:
        _verify_next(due, at)
        if time.monotonic() >= deadline:
            break


def _verify_next(verification: Verification, at: datetime) -> None:
    after_id = verification.after_chain_id
    db.session.commit()
    chain_ids = next(batches_of_chains(after_id), [])
    results = verify_chains(chain_ids) if chain_ids else list(problems_outside_chains())
    db.session.commit()
    db.session.refresh(verification, with_for_update=True)
    if verification.after_chain_id == after_id and verification.ended_at is None:
        verification.add(results)
        note_verified(results, at)
        for result in results:
            if result.problem is not None:
                _log.error("verification failed", chain=result.name, problem=result.problem)
        if chain_ids:
            verification.after_chain_id = chain_ids[-1]
        else:
            verification.end(at)
    db.session.commit()
