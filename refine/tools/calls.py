"""Definitions, parameters and results of all tools."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from reprlib import repr as short_repr
from typing import Any

from refine.errors import InvalidValue
from refine.rules.instants import from_iso
from refine.rules.second_reading import REASONS, Reason

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


def given_in(
    params: Mapping[str, Any],
    taker: str,
    required: Sequence[str],
    optional: Sequence[str],
    known: Collection[str] | None = None,
) -> dict[str, Any]:
    """Return what is given of the parameters, blanks left out, unless InvalidValue; of unknown ones
    (by default, all that are not taken) a blank is given, too.
    """
    allowed = (*required, *optional)
    known = allowed if known is None else known
    given = {
        name: value for name, value in params.items() if name not in known or not _is_blank(value)
    }
    if set(given) - set(allowed):
        raise InvalidValue(unknown_parameter(taker, allowed))
    for name in required:
        if name not in given:
            raise InvalidValue(missing(name, taker))
    return given


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def text_in(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue("content must be text")
    return value


def reason_in(value: object) -> Reason:
    for reason in REASONS:
        if value == reason:
            return reason
    raise InvalidValue(f"reason must be one of: {', '.join(REASONS)}")


def instant_in(name: str, value: object) -> datetime | None:
    if value is None:
        return None
    try:
        return from_iso(value if isinstance(value, str) else "")
    except (ValueError, OverflowError):
        raise InvalidValue(f"{name} must be an ISO date such as 2026-03-01") from None
