"""Reading JSON that others wrote: strictly, because a repaired mutation is a guess."""

import json
import re
from typing import Any

from refine.errors import InvalidValue

MAX_ARGUMENT_BYTES = 256 * 1024

# As json writes it: a backslash before it would make it six harmless characters.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def parse_arguments(arguments: object) -> dict[str, Any]:
    """Return the JSON object that a model wrote; missing, blank and null arguments are ``{}``.

    Raises InvalidValue for anything that is not exactly one JSON object: fences, trailing commas,
    trailing text, repeated keys, NaN, numbers beyond reason, nesting beyond reason, NUL, half
    surrogates, more than 256 KiB. Never repairs.
    """
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    if not isinstance(arguments, str):
        raise InvalidValue("arguments must be a JSON object written as a string")
    parsed = strict_json(arguments)
    if parsed is None:
        return {}
    if not isinstance(parsed, dict):
        raise InvalidValue("arguments must be one JSON object")
    return parsed


def strict_json(text: str, what: str = "arguments", *, most_bytes: int = MAX_ARGUMENT_BYTES) -> Any:
    """Return the value that a JSON text stands for; ``what`` names it in refusals.

    Raises InvalidValue for all that ``parse_arguments`` does, but takes any value.
    """
    if len(text) * 4 > most_bytes and len(_utf8(text, what)) > most_bytes:
        raise InvalidValue(f"{what} must not be longer than {most_bytes:,} bytes")
    try:
        parsed = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
        written = json.dumps(parsed, ensure_ascii=False, allow_nan=False)
    except _NotStrict as refusal:
        raise InvalidValue(f"{what} {refusal}") from None
    except (ValueError, RecursionError):
        # json's own message quotes nothing, but its position is no help to a model either
        raise InvalidValue(f"{what} must be valid JSON") from None
    _utf8(written, what)
    if _NUL.search(written):
        raise InvalidValue(f"{what} must not contain a NUL character")
    return parsed


class _NotStrict(Exception):
    """JSON that others would take; the message says what is wrong with it."""


def _utf8(text: str, what: str) -> bytes:
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise InvalidValue(f"{what} must be valid Unicode") from None
    return encoded


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    parsed = dict(pairs)
    if len(parsed) != len(pairs):
        raise _NotStrict("must not repeat a key")
    return parsed


def _refuse_constant(name: str) -> Any:
    raise _NotStrict(f"must not contain {name}, which is not JSON")
