"""The mechanic's exception: a human's time-limited permission to read one agent's memories.

``grant`` is the request, the agent's answer and the permission, ``terms`` what a user asks for,
``asking_rules`` says who may ask, ``history`` counts what was asked and lists what was read.
"""

from refine.models.runs.access.grant import (
    END_REASONS,
    NO_LONGER_ALLOWED,
    STATUSES,
    AccessAlreadyRequested,
    AccessGrant,
)
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
    "MAX_PURPOSE_CHARACTERS",
    "MIN_MINUTES",
    "MIN_PURPOSE_CHARACTERS",
    "NO_LONGER_ALLOWED",
    "REASONS",
    "STATUSES",
    "AccessAlreadyRequested",
    "AccessGrant",
    "AccessTerms",
]
