"""Refinement sessions.

``state`` is what the row holds, ``session`` the noun and its life (queue, claim, snapshot),
``ending`` its end. In between come ``duplicates``, ``editing`` and ``breaker``: ``refusing`` says
which edits are not made, ``survival`` what the ledger must go on saying, ``held`` how an edit is
written, with its ``statements``, and ``entry`` what is counted for each memory. ``notes`` is what
the agent is told at the end. Of many sessions, ``scheduling`` says who is due and who must wait,
``prospects`` whom a sweep would ask, and what that may cost, ``totals`` what they did.
"""

from refine.models.runs.session.entry import SessionEntry
from refine.models.runs.session.refusing import EditRefused
from refine.models.runs.session.session import (
    RefinementSession,
    SessionAlreadyLive,
    SessionRequest,
)
from refine.models.runs.session.state import (
    AUTOMATIC_TRIGGERS,
    ENDED,
    MAX_MUTATIONS,
    ROLLING_WINDOW,
    TRIGGERS,
    Channel,
    EndStatus,
    Trigger,
)

__all__ = [
    "AUTOMATIC_TRIGGERS",
    "ENDED",
    "MAX_MUTATIONS",
    "ROLLING_WINDOW",
    "TRIGGERS",
    "Channel",
    "EditRefused",
    "EndStatus",
    "RefinementSession",
    "SessionAlreadyLive",
    "SessionEntry",
    "Trigger",
    "SessionRequest",
]
