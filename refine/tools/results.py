"""Results of tools, as a model reads them."""

from collections.abc import Iterable
from typing import Any

Result = dict[str, Any]

# How much of a wrong word is quoted back.
MAX_QUOTED = 60


def error(message: str, **facts: Any) -> Result:
    """Return the result that says what is wrong and what to do."""
    return {"type": "error", "error": message, **facts}


def unknown_parameter(taker: str, allowed: Iterable[str]) -> str:
    """Return the message for a parameter that a tool, or one action of it, does not take."""
    return f"unknown parameter; {taker} takes: {', '.join(allowed)}"
