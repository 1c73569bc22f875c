"""The mechanic's exception: time-limited permission to read one agent's memories."""

from refine.models.runs.access.asking_rules import (
    MAX_MINUTES,
    MAX_PURPOSE_CHARACTERS,
    MIN_MINUTES,
    MIN_PURPOSE_CHARACTERS,
    REASONS,
    AccessTerms,
)
from refine.models.runs.access.grant import (
    END_REASONS,
    NO_LONGER_ALLOWED,
    STATUSES,
    AccessAlreadyRequested,
    AccessGrant,
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
