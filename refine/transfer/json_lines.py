"""JSON Lines: one row per line, read one at a time within limits."""

from collections.abc import Iterator
from typing import Any, BinaryIO

from refine.errors import InvalidValue
from refine.rules.strict_json import strict_json_values

MAX_ROW_BYTES = 2_000_000
MAX_FIELDS = 1_000
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

TOO_LONG = f"must not be longer than {MAX_ROW_BYTES:,} bytes"


def numbered_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yield each line that is not blank with its number; None is a line that is too long."""
    number = 0
    while line := stream.readline(MAX_ROW_BYTES + 1):
        number += 1
        if len(line) > MAX_ROW_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_ROW_BYTES)
            yield number, None
        elif (row := line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line).strip():
            yield number, row


def line_values(line: bytes | None) -> list[Any]:
    """Return the JSON values of a line of ``numbered_lines``; InvalidValue says what is wrong."""
    if line is None:
        raise InvalidValue(TOO_LONG)
    return strict_json_values(line, max_bytes=MAX_ROW_BYTES, max_fields=MAX_FIELDS)


def line_object(line: bytes | None) -> dict[str, Any]:
    values = line_values(line)
    if len(values) != 1:
        raise InvalidValue("must be valid JSON")
    return json_object(values[0])


def json_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidValue("is not an object")
    return value
