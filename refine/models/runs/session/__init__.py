"""Refinement sessions.

``session`` is the noun and its life: queue, claim, snapshot, end. In between come ``duplicates``
and ``editing``: ``refusing`` says which edits are not made, ``survival`` what the ledger must go on
saying, ``entry`` what is counted for each memory, and ``breaker`` undoes everything. ``notes`` is
what the agent is told at the end. Of many sessions, ``scheduling`` says who is due and who must
wait, ``prospects`` whom a sweep would ask and what that may cost, ``totals`` what they did.
"""

from refine.models.runs.session.entry import SessionEntry
from refine.models.runs.session.refusing import EditRefused
from refine.models.runs.session.session import (
    CONSENTED_ENDS,
    END_ACTION,
    ENDED,
    LOOP_EDITS,
    MAX_MUTATIONS,
    MUTATIONS,
    NEED_ATTENTION,
    ROLLING_WINDOW,
    TRIGGERS,
    AttentionStatus,
    Channel,
    EndStatus,
    RefinementSession,
    SessionAlreadyLive,
    SessionRequest,
    Trigger,
)

__all__ = [
    "CONSENTED_ENDS",
    "ENDED",
    "END_ACTION",
    "LOOP_EDITS",
    "MAX_MUTATIONS",
    "MUTATIONS",
    "NEED_ATTENTION",
    "ROLLING_WINDOW",
    "TRIGGERS",
    "AttentionStatus",
    "Channel",
    "EditRefused",
    "EndStatus",
    "RefinementSession",
    "SessionAlreadyLive",
    "SessionEntry",
    "SessionRequest",
    "Trigger",
]
