"""JSON from strangers: parsed strictly, within limits, without ever quoting it."""

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn

from refine.errors import InvalidValue
from refine.rules.content import storable

MAX_ROW_BYTES = 2_000_000
MAX_DEPTH = 20
MAX_NAMES = 1_000
MAX_DIGITS = 100

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

TOO_LONG = f"has more than {MAX_ROW_BYTES:,} bytes"

Raw = tuple[int, bytes | None]

_BLANKS = re.compile(r"\s*")


def parsed(raw: bytes) -> Any:
    """Return the one JSON value that ``raw`` is; InvalidValue says what is wrong with it."""
    values = all_parsed(raw)
    if len(values) != 1:
        raise InvalidValue("is not valid JSON")
    return values[0]


def all_parsed(raw: bytes) -> list[Any]:
    """Return the JSON values that stand in ``raw`` one after the other."""
    text = _text(raw)
    values, at = [], 0
    try:
        while at < len(text):
            value, at = _DECODER.raw_decode(text, at)
            at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]  # matches anything
            values.append(value)
    except json.JSONDecodeError:
        raise InvalidValue("is not valid JSON") from None
    except RecursionError:
        raise InvalidValue(f"is nested more than {MAX_DEPTH} levels deep") from None
    for value in values:
        _check(value)
    return values


def lines(stream: BinaryIO) -> Iterator[Raw]:
    """Yield each line that is not blank, with its number; None for one that is too long."""
    number = 0
    while line := stream.readline(MAX_ROW_BYTES + 1):
        number += 1
        if len(line) > MAX_ROW_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_ROW_BYTES)
            yield number, None
        elif (row := line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line).strip():
            yield number, row


def _text(raw: bytes) -> str:
    try:
        return raw.decode().strip()
    except UnicodeDecodeError:
        raise InvalidValue("is not valid UTF-8") from None


def _check(value: Any) -> None:
    """Refuse what is too deep, too wide, or holds text that cannot be stored."""
    names, depth = 0, 0
    level = [value]
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise InvalidValue(f"is nested more than {MAX_DEPTH} levels deep")
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                names += len(one)
                inner += one.keys()
                inner += one.values()
            elif isinstance(one, list):
                inner += one
            elif isinstance(one, str):
                storable(one, field="a text in it")
        if names > MAX_NAMES:
            raise InvalidValue(f"has more than {MAX_NAMES:,} fields")
        level = inner


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise InvalidValue("has the same field twice")
    return made


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise InvalidValue(f"has a number of more than {MAX_DIGITS} digits")
    return int(digits)


def _fraction(digits: str) -> float:
    number = float(digits)
    if abs(number) == float("inf"):
        raise InvalidValue("has a number that is too large")
    return number


def _no_number(_word: str) -> NoReturn:
    raise InvalidValue("has NaN or Infinity, which are not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_whole, parse_float=_fraction, parse_constant=_no_number
)
