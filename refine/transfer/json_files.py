"""JSON documents, which are read whole, and JSON Lines, of which one line is read at a time."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, BinaryIO

from refine.errors import InvalidValue
from refine.rules.strict_json import check_json, strict_json_values, unchecked_json
from refine.transfer.rows import Row, row_at

MAX_DOCUMENT_BYTES = 256_000_000
MAX_LINE_BYTES = 2_000_000
_MAX_FIELDS = 1_000
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_document(stream: BinaryIO) -> Any:
    """Return the value of a JSON document; its rows are checked where they are used.

    Raises InvalidValue if the document is damaged, repeats a key or is too large.
    """
    raw = stream.read(MAX_DOCUMENT_BYTES + 1)
    if len(raw) > MAX_DOCUMENT_BYTES:
        raise InvalidValue(
            f"is longer than {MAX_DOCUMENT_BYTES:,} bytes: split its rows into several files"
        )
    return unchecked_json(raw.removeprefix(_BYTE_ORDER_MARK))


def rows_of_objects(
    noun: str, values: Iterable[Any], make: Callable[[str, dict[str, Any]], Row]
) -> Iterator[Row]:
    """Yield what ``make`` makes of each object of a document, or why it is a bad row."""
    for number, value in enumerate(values, 1):
        place = f"{noun} {number}"
        yield row_at(place, partial(_made, place, value, make))


def _made(place: str, value: Any, make: Callable[[str, dict[str, Any]], Row]) -> Row:
    check_json(value, max_fields=_MAX_FIELDS)
    return make(place, json_object(value))


def numbered_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yield each line that is not blank with its number; None is a line that is too long."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE_BYTES)
            yield number, None
        elif (row := line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line).strip():
            yield number, row


def line_values(line: bytes | None) -> list[Any]:
    """Return the JSON values of a line of ``numbered_lines``; InvalidValue says what is wrong."""
    if line is None:
        raise InvalidValue(f"must not be longer than {MAX_LINE_BYTES:,} bytes")
    return strict_json_values(line, max_bytes=MAX_LINE_BYTES, max_fields=_MAX_FIELDS)


def line_object(line: bytes | None) -> dict[str, Any]:
    values = line_values(line)
    if len(values) != 1:
        raise InvalidValue("must be valid JSON")
    return json_object(values[0])


def json_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidValue("is not an object")
    return value
