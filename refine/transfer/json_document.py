"""Values at chosen places of a JSON document, one at a time, however large the document is.

ijson's Python backend, on purpose: the compiled one turns half a surrogate pair into ``?`` and
fails with a SystemError on a number of 5,000 digits.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

import ijson
from ijson.common import ObjectBuilder

from refine.errors import InvalidValue
from refine.rules.strict_json import check_parsed
from refine.transfer.json_lines import (
    BYTE_ORDER_MARK,
    MAX_FIELDS,
    MAX_ROW_BYTES,
    TOO_LONG,
    json_object,
)

# The way to a value: names of fields, None for each element of a list.
Place = tuple[str | None, ...]
Path = tuple[str | int, ...]
_Events = Iterator[tuple[str, Any]]

_CHUNK_BYTES = 65_536
_MAX_DEPTH_AROUND_ROWS = 200
_DEPTH_CHANGES = {"start_map": 1, "start_array": 1, "end_map": -1, "end_array": -1}

_backend = ijson.get_backend("python")


@dataclass(frozen=True)
class Element:
    """A value at a chosen place; ``problem`` says why it cannot be used."""

    path: Path
    value: Any
    problem: str | None

    def object(self) -> dict[str, Any]:
        if self.problem is not None:
            raise InvalidValue(self.problem)
        return json_object(self.value)


class Document:
    """One document, read once. ``lists`` holds the paths of the lists whose elements were read."""

    def __init__(self, stream: BinaryIO, places: Sequence[Place]) -> None:
        self.lists: set[Path] = set()
        self._stream = stream
        self._places = frozenset(places)

    def elements(self) -> Iterator[Element]:
        """Yield the values at the chosen places; InvalidValue where the document is damaged.

        A value that breaks a limit or repeats a key is an Element with a ``problem``, and reading
        goes on. Memory is bounded by the largest row that is allowed.
        """
        events = _events(self._stream)
        path: list[str | int] = []  # where the next value stands
        for event, value in events:
            if event == "map_key":
                path[-1] = value
                continue
            if event in ("end_map", "end_array"):
                path.pop()
            elif (place := _place(path)) in self._places:
                yield _element(tuple(path), event, value, events)
            elif event in ("start_map", "start_array"):
                if event == "start_array" and (*place, None) in self._places:
                    self.lists.add(tuple(path))
                path.append("" if event == "start_map" else 0)
                if len(path) > _MAX_DEPTH_AROUND_ROWS:
                    raise InvalidValue("is nested too deep")
                continue
            if path and isinstance(path[-1], int):
                path[-1] += 1


def _events(stream: BinaryIO) -> _Events:
    """Yield ijson's events. Memory is bounded: no single text or number may exceed a row."""
    if stream.read(len(BYTE_ORDER_MARK)) != BYTE_ORDER_MARK:
        stream.seek(0)
    parsed = ijson.sendable_list()
    parser = _backend.basic_parse_coro(parsed, use_float=True)
    pending_bytes, is_damaged = 0, False
    try:
        while not is_damaged and (chunk := stream.read(_CHUNK_BYTES)):
            is_damaged = not _feed(parser.send, chunk)
            pending_bytes = 0 if parsed else pending_bytes + len(chunk)
            if pending_bytes > MAX_ROW_BYTES:
                raise InvalidValue(f"holds a text that {TOO_LONG}")
            yield from parsed
            parsed.clear()
        is_damaged = is_damaged or not _feed(parser.send, b"")
        yield from parsed
    finally:
        # closed here and not by the garbage collector, which would print errors that quote content
        with suppress(Exception):
            parser.close()
    if is_damaged:
        raise InvalidValue("is not valid JSON: it is damaged or was cut off")


def _feed(send: Callable[[bytes], object], chunk: bytes) -> bool:
    """Parse a chunk (empty: the end); return False if the document is damaged there."""
    try:
        send(chunk)
    except StopIteration:
        return True
    except (ijson.JSONError, ValueError, ArithmeticError):
        return False
    return True


def _place(path: list[str | int]) -> Place:
    return tuple(None if isinstance(step, int) else step for step in path)


def _element(path: Path, event: str, value: Any, events: _Events) -> Element:
    """Build the value that begins with ``event``; read to its end whatever is wrong with it."""
    builder = ObjectBuilder(map_type=_UniqueKeys)
    depth, size_bytes = 0, 0
    problem: str | None = None
    while True:
        depth += _DEPTH_CHANGES.get(event, 0)
        size_bytes += _size_bytes(value)
        if size_bytes > MAX_ROW_BYTES:
            problem = TOO_LONG
        if problem is None:
            try:
                builder.event(event, value)
            except InvalidValue as error:
                problem = str(error)
        if depth == 0:
            break
        event, value = next(events)
    try:
        if problem is None:
            check_parsed(builder.value, max_fields=MAX_FIELDS)
    except InvalidValue as error:
        problem = str(error)
    return Element(path, None if problem else builder.value, problem)


def _size_bytes(value: Any) -> int:
    return len(value.encode(errors="surrogatepass")) + 3 if isinstance(value, str) else 1


class _UniqueKeys(dict[str, Any]):
    def __setitem__(self, key: str, value: Any) -> None:
        if key in self:
            raise InvalidValue("must not repeat a key")
        super().__setitem__(key, value)
