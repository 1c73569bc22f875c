"""The one strict JSON parser. It never repairs, and its errors never quote the input."""

import json
import math
import re
from typing import Any, NoReturn

from refine.errors import InvalidValue
from refine.rules.content import unstorable_reason

MAX_DEPTH = 20
MAX_DIGITS = 100

_TOO_DEEP = f"must not be nested more than {MAX_DEPTH} levels deep"
_BEYOND_DIGITS = 10**MAX_DIGITS
_NOT_BLANK = re.compile(r"[^ \t\r\n]")


def strict_json(
    text: str | bytes, subject: str = "", *, max_bytes: int, max_fields: int | None = None
) -> Any:
    """Return the JSON value in ``text``; ``subject`` names it in error messages.

    Raises InvalidValue unless ``text`` is exactly one JSON value within the limits, without
    repeated keys, NaN, infinities, NUL characters or lone surrogates.
    """
    values = strict_json_values(text, subject, max_bytes=max_bytes, max_fields=max_fields)
    if len(values) != 1:
        raise InvalidValue(f"{subject} must be valid JSON".strip())
    return values[0]


def strict_json_values(
    text: str | bytes, subject: str = "", *, max_bytes: int, max_fields: int | None = None
) -> list[Any]:
    """Return the JSON values in ``text``, which may follow one another without a separator."""
    try:
        values = _decode(_bounded(text, max_bytes))
        for value in values:
            _check(value, max_fields)
    except _Refusal as refusal:
        raise InvalidValue(f"{subject} {refusal}".strip()) from None
    return values


def unchecked_json(text: str | bytes) -> Any:
    """Return the one JSON value in a large document; ``check_json`` then checks its parts."""
    try:
        values = _decode(text if isinstance(text, str) else _decoded(text))
    except _Refusal as refusal:
        raise InvalidValue(str(refusal)) from None
    if len(values) != 1:
        raise InvalidValue("must be valid JSON")
    return values[0]


def check_json(value: Any, *, max_fields: int) -> None:
    """Raise InvalidValue if a part of ``unchecked_json`` breaks a limit, or cannot be stored."""
    try:
        _check(value, max_fields)
    except _Refusal as refusal:
        raise InvalidValue(str(refusal)) from None


class _Refusal(Exception):
    """Says what is wrong, without the subject."""


def _bounded(text: str | bytes, max_bytes: int) -> str:
    given = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    if len(given) > max_bytes:
        raise _Refusal(f"must not be longer than {max_bytes:,} bytes")
    return text if isinstance(text, str) else _decoded(text)


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise _Refusal("must be valid UTF-8") from None


def _decode(text: str) -> list[Any]:
    values, end = [], 0
    try:
        while (start := _NOT_BLANK.search(text, end)) is not None:
            value, end = _DECODER.raw_decode(text, start.start())
            values.append(value)
    except ValueError:  # its message has a position, which helps nobody here
        raise _Refusal("must be valid JSON") from None
    except RecursionError:
        raise _Refusal(_TOO_DEEP) from None
    return values


def _check(value: Any, max_fields: int | None) -> None:
    fields, depth, level = 0, 0, [value]
    texts: list[str] = []  # searched in one go, which is quicker
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise _Refusal(_TOO_DEEP)
        inner: list[Any] = []
        for each in level:
            kind = type(each)
            if kind is str:
                texts.append(each)
            elif kind is dict:
                fields += len(each)
                texts += each
                inner += each.values()
            elif kind is list:
                inner += each
            elif kind is int or kind is float:
                _check_number(each)
        if max_fields is not None and fields > max_fields:
            raise _Refusal(f"must not have more than {max_fields:,} fields")
        level = inner
    if (problem := unstorable_reason("".join(texts))) is not None:
        raise _Refusal(problem)


def _check_number(value: float) -> None:
    if isinstance(value, int) and abs(value) >= _BEYOND_DIGITS:
        raise _Refusal(f"must not contain a number of more than {MAX_DIGITS} digits")
    if isinstance(value, float) and not math.isfinite(value):
        raise _Refusal("must not contain a number that is too large")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Refusal("must not repeat a key")
    return made


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS + 1:  # Python refuses to convert very long ones
        raise _Refusal(f"must not contain a number of more than {MAX_DIGITS} digits")
    return int(digits)


def _refuse_constant(name: str) -> NoReturn:
    raise _Refusal(f"must not contain {name}, which is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_int=_parse_int, parse_constant=_refuse_constant
)


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
