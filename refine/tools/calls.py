"""Definitions and results of all tools."""

from collections.abc import Iterable
from reprlib import repr as short_repr
from typing import Any

Result = dict[str, Any]

# How much of a wrong word is quoted back.
_MAX_QUOTED = 60


def function_definition(
    name: str, description: str, properties: dict[str, Any], required: Iterable[str] | None = None
) -> dict[str, Any]:
    """Return a definition for chat completions; OpenAI's strict mode requires all properties."""
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def error(message: str, **facts: Any) -> Result:
    return {"type": "error", "error": message, **facts}


def without_echo(result: Result, arguments: dict[str, Any]) -> Result:
    """Return the result without the call's own texts: the model would pay for them twice."""
    said = [value for value in arguments.values() if isinstance(value, str)]
    return {name: value for name, value in result.items() if name == "type" or value not in said}


def invalid(name: str, value: object) -> str:
    try:
        shown = value if isinstance(value, str) else short_repr(value)
    except ValueError:  # a number of thousands of digits
        shown = "a long number"
    return f"Invalid {name} '{shown[:_MAX_QUOTED]}'"


def missing(name: str, taker: str) -> str:
    return f"{name} is required for {taker}"


def unknown_parameter(taker: str, allowed: Iterable[str]) -> str:
    return f"unknown parameter; {taker} takes: {', '.join(allowed)}"
