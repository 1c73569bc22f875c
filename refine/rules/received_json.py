"""JSON from outside: of people, programs and models read strictly, never repaired, with errors that
do not quote it; of a model's server without what no request could repeat.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from refine.errors import InvalidValue
from refine.rules.content import unstorable_reason

MAX_DEPTH = 20
MAX_DIGITS = 100
MAX_ARGUMENT_BYTES = 256 * 1024

# Deeper than any answer of a model's server, and still accepted by servers in a request.
MAX_ANSWERED_DEPTH = 64
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

_TOO_DEEP = f"must not be nested more than {MAX_DEPTH} levels deep"
_TOO_MANY_DIGITS = f"must not contain a number of more than {MAX_DIGITS} digits"
_NOT_BLANK = re.compile(r"[^ \t\r\n]")


def strict_json(
    text: str | bytes, subject: str = "", *, max_bytes: int, max_fields: int | None = None
) -> Any:
    """Return the value in ``text``; InvalidValue unless it is one JSON value within limits."""
    try:
        values = strict_json_values(text, max_bytes=max_bytes, max_fields=max_fields)
        return only(values)
    except InvalidValue as error:
        raise InvalidValue(f"{subject} {error}".strip()) from None


def strict_json_values(
    text: str | bytes, *, max_bytes: int, max_fields: int | None = None
) -> list[Any]:
    given = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    if len(given) > max_bytes:
        raise InvalidValue(f"must not be longer than {max_bytes:,} bytes")
    values = unchecked_json_values(text)
    for value in values:
        check_json(value, max_fields=max_fields)
    return values


def unchecked_json(text: str | bytes) -> Any:
    return only(unchecked_json_values(text))


def check_json(value: Any, *, max_fields: int | None) -> None:
    """Raise InvalidValue if a part of ``unchecked_json`` breaks a limit, or cannot be stored."""
    fields, depth, level = 0, 0, [value]
    texts: list[str] = []  # searched in one go, which is quicker
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise InvalidValue(_TOO_DEEP)
        inner: list[Any] = []
        for each in level:
            if isinstance(each, str):
                texts.append(each)
            elif isinstance(each, dict):
                fields += len(each)
                texts += each
                inner += each.values()
            elif isinstance(each, list):
                inner += each
            elif isinstance(each, float) and not math.isfinite(each):
                raise InvalidValue("must not contain a number that is too large")
        if max_fields is not None and fields > max_fields:
            raise InvalidValue(f"must not have more than {max_fields:,} fields")
        level = inner
    if (problem := unstorable_reason("".join(texts))) is not None:
        raise InvalidValue(problem)


def only(values: list[Any]) -> Any:
    if len(values) != 1:
        raise InvalidValue("must be valid JSON")
    return values[0]


def unchecked_json_values(text: str | bytes) -> list[Any]:
    values, end = [], 0
    try:
        text = text if isinstance(text, str) else text.decode()
        while (start := _NOT_BLANK.search(text, end)) is not None:
            value, end = _DECODER.raw_decode(text, start.start())
            values.append(value)
    except UnicodeDecodeError:
        raise InvalidValue("must be valid UTF-8") from None
    except json.JSONDecodeError:  # its message has a position, which helps nobody here
        raise InvalidValue("must be valid JSON") from None
    except RecursionError:
        raise InvalidValue(_TOO_DEEP) from None
    return values


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise InvalidValue("must not repeat a key")
    return made


def _parse_int(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:  # Python refuses to convert very long ones
        raise InvalidValue(_TOO_MANY_DIGITS)
    return int(digits)


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidValue(f"must not contain {name}, which is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_int=_parse_int, parse_constant=_refuse_constant
)


def parse_arguments(arguments: object) -> dict[str, Any]:
    """Return a model's JSON object; never repaired, as that is a guess; blank ones are ``{}``."""
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


# -- from a model's server ------------------------------------------------------------------------


def answered_json(body: bytes) -> Any:
    """Return the value without NaN and lone surrogates; ValueError if it is no JSON."""
    try:
        value = json.loads(body, parse_constant=lambda _name: None, parse_float=_finite)
        if _depth(value) > MAX_ANSWERED_DEPTH:
            raise ValueError("it is nested too deeply")
        written = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if _LONE_SURROGATE.search(written) is None:
        return value
    return json.loads(_LONE_SURROGATE.sub("\ufffd", written))


def at(value: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path into nested objects; None if there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _finite(written: str) -> float | None:
    number = float(written)
    return number if math.isfinite(number) else None


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, inner), default=0) if isinstance(value, dict | list) else 0
