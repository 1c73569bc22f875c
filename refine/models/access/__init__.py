"""The mechanic's exception: a human's time-limited permission to read one agent's memories.

``columns`` holds the row and the words for its states, ``asking`` the way from a request to the
agent's answer, ``ending`` all ends, ``grant`` the whole. All times are the database's: a process
whose clock is wrong lets nobody read for longer.
"""

from refine.models.access.columns import (
    END_REASONS,
    MAX_MINUTES,
    MAX_NOTE_CHARACTERS,
    MAX_PURPOSE_CHARACTERS,
    MIN_MINUTES,
    MIN_PURPOSE_CHARACTERS,
    REASONS,
    STATUSES,
    Wish,
)
from refine.models.access.grant import AccessGrant, AccessOpenAlready

__all__ = [
    "END_REASONS",
    "MAX_MINUTES",
    "MAX_NOTE_CHARACTERS",
    "MAX_PURPOSE_CHARACTERS",
    "MIN_MINUTES",
    "MIN_PURPOSE_CHARACTERS",
    "REASONS",
    "STATUSES",
    "AccessGrant",
    "AccessOpenAlready",
    "Wish",
]
