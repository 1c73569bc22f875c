"""The arguments of a tool call, as a model wrote them."""

from typing import Any

from refine.errors import InvalidValue
from refine.rules.strict_json import strict_json

MAX_ARGUMENT_BYTES = 256 * 1024


def parse_arguments(arguments: object) -> dict[str, Any]:
    """Return the JSON object that a model wrote; missing, blank and null arguments are ``{}``.

    Raises InvalidValue for anything else that is not exactly one strict JSON object. Malformed
    arguments are never repaired: a repaired mutation is a guess.
    """
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    if not isinstance(arguments, str):
        raise InvalidValue("arguments must be a JSON object written as a string")
    parsed = strict_json(arguments, "arguments", max_bytes=MAX_ARGUMENT_BYTES)
    if parsed is None:
        return {}
    if not isinstance(parsed, dict):
        raise InvalidValue("arguments must be one JSON object")
    return parsed
