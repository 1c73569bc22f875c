"""Agents: the AI personas whose memory is kept.

``agent`` is the class with its columns, key, chain and ledger; ``settings`` says who may change
which setting; ``configuring`` changes them; ``eligibility`` says who may be asked, in Python and in
SQL.
"""

from refine.models.agent import eligibility
from refine.models.agent.agent import Agent, only_key_of
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
    "eligibility",
    "only_key_of",
]
