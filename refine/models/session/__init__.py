"""The session: persisted state, with its capabilities one file each.

``columns`` what the row holds; ``session`` queueing, claiming, holding; ``planning`` who is due
and who is left alone; ``snapshot`` duplicates and what is measured against; ``editing`` the
agent's actions; ``breaker`` the limit and the rollback; ``ending`` every other end; ``entry`` what
is counted for each memory; ``totals`` sums over many.
"""

from refine.models.session.columns import (
    AUTOMATIC_TRIGGERS,
    EndStatus,
    Through,
    Trigger,
)
from refine.models.session.editing import MAX_MUTATIONS, EditRefused
from refine.models.session.entry import SessionEntry
from refine.models.session.session import RefinementSession, SessionAlreadyLive
from refine.models.session.totals import Sums

__all__ = [
    "AUTOMATIC_TRIGGERS",
    "MAX_MUTATIONS",
    "EditRefused",
    "EndStatus",
    "RefinementSession",
    "SessionAlreadyLive",
    "SessionEntry",
    "Sums",
    "Through",
    "Trigger",
]
