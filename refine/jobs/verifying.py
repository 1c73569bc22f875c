"""The daily verification of everything, in slices between the clock's other work."""

import time
from datetime import datetime

import structlog
from sqlalchemy import select

from refine.extensions import db
from refine.models import ChainHead
from refine.models.audit.verification import ChainResult, Verification
from refine.models.integrity import note_verified, problems_outside_chains, verify_chain

_log = structlog.get_logger(__name__)


def verify_slice(at: datetime, deadline: float) -> None:
    """Verify at least one chain of today, and more until ``deadline`` (by ``time.monotonic``).

    Each chain is verified in a snapshot and counted in a transaction of its own. Of two clocks
    that verify the same chain, one counts.
    """
    due = Verification.due(at)
    db.session.commit()
    while due is not None and due.ended_at is None:
        _verify_next(due, at)
        if time.monotonic() >= deadline:
            break


def _verify_next(verification: Verification, at: datetime) -> None:
    after = verification.after_chain_id
    db.session.commit()
    db.session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
    following = select(ChainHead.id).where(ChainHead.id > after).order_by(ChainHead.id).limit(1)
    chain_id = db.session.scalar(following)
    results = [verify_chain(chain_id)] if chain_id is not None else list(problems_outside_chains())
    db.session.commit()
    db.session.refresh(verification, with_for_update=True)
    if verification.after_chain_id == after and verification.ended_at is None:
        _store(verification, results, at)
    db.session.commit()


def _store(verification: Verification, results: list[ChainResult], at: datetime) -> None:
    verification.add(results)
    for result in results:
        note_verified(result)
        if result.problem is not None:
            _log.error("verification failed", chain=result.name, problem=result.problem)
    last = results[0].chain_id if results else None
    if last is None:
        verification.end(at)
    else:
        verification.after_chain_id = last
