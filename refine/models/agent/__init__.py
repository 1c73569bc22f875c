"""Agents: the AI personas whose memory is kept."""

from refine.models.agent import eligibility as eligibility
from refine.models.agent.agent import (
    AUTHORED_FIELDS as AUTHORED_FIELDS,
    MAX_CORE_TOKEN_BUDGET as MAX_CORE_TOKEN_BUDGET,
    PROMPTS as PROMPTS,
    Agent as Agent,
    only_key_of as only_key_of,
)
