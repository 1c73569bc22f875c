"""Results of tools, as a model reads them."""

from typing import Any

Result = dict[str, Any]

# How much of a wrong word is quoted back.
MAX_QUOTED = 60


def error(message: str, **facts: Any) -> Result:
    """Return the result that says what is wrong and what to do."""
    return {"type": "error", "error": message, **facts}


def unknown_parameter(tool: str, *allowed: str) -> Result:
    """Return the error for a parameter that a tool does not take."""
    return error(f"unknown parameter; {tool} takes: {', '.join(allowed)}")
