"""Which of an agent's settings there are, and who may change which."""

from typing import Any

from refine.errors import InvalidValue

MAX_CORE_TOKEN_BUDGET = 10_000_000

PROMPTS = ("system_prompt", "reflection_prompt", "memory_reflection_prompt", "refinement_prompt")

# What makes an agent who it is.
IDENTITY_FIELDS = ("name", "model_id", *PROMPTS)

# Fields that an agent may view and set itself; all but the name have a default.
AUTHORED_FIELDS = ("name", *PROMPTS, "refinement_threshold")

# Fields that an admin may set in the dashboard.
ADMIN_FIELDS = ("model_id", "core_token_budget", "refinement_threshold", "paused", "active")

# Those that an admin may set for many agents at once: nothing that belongs to an agent's identity.
MANY_FIELDS = ("core_token_budget", "refinement_threshold", "paused")

# Fields that an agent's platform may set over the API; it writes prompts but never reads them.
PLATFORM_FIELDS = (*AUTHORED_FIELDS, "model_id", "core_token_budget", "active", "paused")


def valid_budget(value: Any) -> int:
    """Return a core memory budget, or raise InvalidValue."""
    if type(value) is not int or not 1 <= value <= MAX_CORE_TOKEN_BUDGET:
        raise InvalidValue(
            f"core_token_budget must be a whole number from 1 to {MAX_CORE_TOKEN_BUDGET:,}"
        )
    return value
