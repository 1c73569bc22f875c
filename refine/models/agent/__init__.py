"""Agents: the AI personas whose memory is kept.

``owner`` is the agent as owner of its ledger, key and audit chain; ``figures`` are those of ledger
and sessions on its row; ``eligibility`` says who may be asked, in Python and in SQL; ``answered``
says whose model any server answers for; ``settings`` holds the settings and their defaults;
``configuring`` says who may change which; ``agent`` is the whole. ``groups`` counts agents by what
they have in common.
"""

from refine.models.agent.agent import Agent
from refine.models.agent.owner import only_key_of
from refine.models.agent.settings import (
    ADMIN_FIELDS,
    AUTHORED_FIELDS,
    IDENTITY_FIELDS,
    MAX_CORE_TOKEN_BUDGET,
    PLATFORM_FIELDS,
    PROMPTS,
)

__all__ = [
    "ADMIN_FIELDS",
    "AUTHORED_FIELDS",
    "IDENTITY_FIELDS",
    "MAX_CORE_TOKEN_BUDGET",
    "PLATFORM_FIELDS",
    "PROMPTS",
    "Agent",
    "only_key_of",
]
