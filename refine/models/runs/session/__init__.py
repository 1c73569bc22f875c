"""Refinement sessions.

``state`` is what the row holds; ``session`` the noun and its life: queue, claim, snapshot;
``ending`` its end;
``duplicates``, ``editing`` and ``breaker`` are what happens in between, ``refusing`` which edits
are not made, ``survival`` what the ledger must go on saying, ``held`` how an edit is written, with
its ``statements``; ``entry`` is what is counted for each memory, ``notes`` what the agent is told
at the end; ``scheduling`` who is due, and who must wait, ``prospects`` whom a sweep would ask;
``totals`` sums over many.
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
