"""The mechanic's exception: time-limited permission to read one agent's memories."""

from refine.models.runs.access.asking_rules import (
    MAX_MINUTES as MAX_MINUTES,
    MAX_PURPOSE_CHARACTERS as MAX_PURPOSE_CHARACTERS,
    MIN_MINUTES as MIN_MINUTES,
    MIN_PURPOSE_CHARACTERS as MIN_PURPOSE_CHARACTERS,
    REASONS as REASONS,
    AccessTerms as AccessTerms,
)
from refine.models.runs.access.grant import (
    END_REASONS as END_REASONS,
    NO_LONGER_ALLOWED as NO_LONGER_ALLOWED,
    STATUSES as STATUSES,
    AccessAlreadyRequested as AccessAlreadyRequested,
    AccessGrant as AccessGrant,
)
from refine.models.runs.access.scope import AccessScope as AccessScope
