"""The mechanic's exception: a human's time-limited permission to read one agent's memories.

``terms`` is what a user asks for, ``asking_rules`` says who may ask, ``grant`` is the request, the
agent's answer and the permission, ``ending`` how they end, ``viewed`` what was read under it.
"""

from refine.models.runs.access.ending import (
    END_REASONS,
    MAX_NOTE_CHARACTERS,
    NO_LONGER_ALLOWED,
)
from refine.models.runs.access.grant import STATUSES, AccessAlreadyRequested, AccessGrant
from refine.models.runs.access.terms import (
    MAX_MINUTES,
    MAX_PURPOSE_CHARACTERS,
    MIN_MINUTES,
    MIN_PURPOSE_CHARACTERS,
    REASONS,
    AccessTerms,
)

__all__ = [
    "END_REASONS",
    "MAX_MINUTES",
    "MAX_NOTE_CHARACTERS",
    "MAX_PURPOSE_CHARACTERS",
    "MIN_MINUTES",
    "MIN_PURPOSE_CHARACTERS",
    "NO_LONGER_ALLOWED",
    "REASONS",
    "STATUSES",
    "AccessGrant",
    "AccessAlreadyRequested",
    "AccessTerms",
]
