"""Results of tools, as a model reads them."""

from collections.abc import Iterable
from reprlib import repr as short_repr
from typing import Any

Result = dict[str, Any]

# How much of a wrong word is quoted back.
_MAX_QUOTED = 60


def error(message: str, **facts: Any) -> Result:
    """Return the result that says what is wrong and what to do."""
    return {"type": "error", "error": message, **facts}


def without_echo(result: Result, arguments: dict[str, Any]) -> Result:
    """Return the result without the texts of the call itself, which the model would pay for twice.

    Ids stay, and so does what differs from what the model wrote.
    """
    said = [value for value in arguments.values() if isinstance(value, str)]
    return {name: value for name, value in result.items() if name == "type" or value not in said}


def invalid(name: str, value: object) -> str:
    """Return the message for a parameter with a value that is not allowed."""
    return f"Invalid {name} '{_shown(value)[:_MAX_QUOTED]}'"


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return short_repr(value)
    except ValueError:  # a number of thousands of digits
        return "a long number"


def missing(name: str, taker: str) -> str:
    """Return the message for a parameter that a tool, or one action of it, needs."""
    return f"{name} is required for {taker}"


def unknown_parameter(taker: str, allowed: Iterable[str]) -> str:
    """Return the message for a parameter that a tool, or one action of it, does not take."""
    return f"unknown parameter; {taker} takes: {', '.join(allowed)}"
