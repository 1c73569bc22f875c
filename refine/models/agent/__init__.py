"""Agents: the AI personas whose memory is kept."""

from refine.models.agent import eligibility
from refine.models.agent.agent import (
    AUTHORED_FIELDS,
    MAX_CORE_TOKEN_BUDGET,
    PROMPTS,
    Agent,
    only_key_of,
)

__all__ = [
    "AUTHORED_FIELDS",
    "MAX_CORE_TOKEN_BUDGET",
    "PROMPTS",
    "Agent",
    "eligibility",
    "only_key_of",
]
