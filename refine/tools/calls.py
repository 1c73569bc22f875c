"""Definitions and results of all tools, and ids as models write them."""

import re
from collections.abc import Iterable
from contextlib import suppress
from reprlib import repr as short_repr
from typing import Any

from refine.errors import InvalidValue
from refine.models.columns import ID, MAX_ID
from refine.rules.received_json import MAX_ARGUMENT_BYTES, strict_json

Result = dict[str, Any]

# How much of a wrong word is quoted back.
_MAX_QUOTED = 60

# Far more than one merge takes, and far fewer than a database takes in a list.
MAX_IDS = 1_000
_NUMBERED = re.compile(rf"#?({ID.pattern})")
_EXPECTED = "use a number such as 7, or a list such as [7, 9]"


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


def parse_ids(value: object) -> list[int]:
    """Return the distinct ids in 7, "7", "#7", "7, 9", [7, 9] or "[7, 9]"; or InvalidValue."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(InvalidValue):
            value = strict_json(value, max_bytes=MAX_ARGUMENT_BYTES)
    if isinstance(value, str):
        parts: list[object] = [part.strip() for part in value.split(",")]
    elif isinstance(value, list):
        parts = value
    else:
        parts = [value]
    if not parts:
        raise InvalidValue(f"no memory id given; {_EXPECTED}")
    if len(parts) > MAX_IDS:
        raise InvalidValue(f"too many memory ids; at most {MAX_IDS:,} per call")
    return list(dict.fromkeys(_parse_id(part) for part in parts))


def parse_single_id(value: object) -> int:
    ids = parse_ids(value)
    if len(ids) != 1:
        raise InvalidValue("id takes a single memory id")
    return ids[0]


def _parse_id(part: object) -> int:
    if type(part) is int:
        number = part if part <= MAX_ID else 0
    else:
        match = _NUMBERED.fullmatch(part.strip()) if isinstance(part, str) else None
        number = int(match.group(1)) if match else 0
    if number < 1:
        raise InvalidValue(f"invalid memory id; {_EXPECTED}")
    return number
