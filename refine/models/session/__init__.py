"""The session: persisted state, with its capabilities one file each.

``columns`` what the row holds; ``session`` queueing, claiming, holding; ``snapshot`` duplicates and
what is measured against; ``editing`` the agent's actions; ``breaker`` the limit and the rollback;
``ending`` every other end; ``entry`` what is counted for each memory.
"""

from refine.models.session.columns import LOST_AFTER, EndStatus, Trigger
from refine.models.session.editing import MAX_MUTATIONS, EditRefused
from refine.models.session.entry import SessionEntry
from refine.models.session.session import LeaseLost, RefinementSession, SessionAlreadyLive

__all__ = [
    "LOST_AFTER",
    "MAX_MUTATIONS",
    "EditRefused",
    "EndStatus",
    "LeaseLost",
    "RefinementSession",
    "SessionAlreadyLive",
    "SessionEntry",
    "Trigger",
]
