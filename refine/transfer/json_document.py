"""Values at chosen places of a JSON document, one at a time, however large the document is."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from refine.errors import InvalidValue
from refine.transfer.json_text import BYTE_ORDER_MARK, MAX_ROW_BYTES, parsed

# The way to a value: names of fields, None for each element of a list.
Place = tuple[str | None, ...]
Path = tuple[str | int, ...]

_CHUNK_BYTES = 65_536
_MAX_NAME_BYTES = 1_000

# No possessive quantifiers: Python 3.11 matches too little with them (python/cpython#106052).
_SPACE = re.compile(rb"[ \t\r\n]*")
_IN_STRING = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_SCALAR = re.compile(rb'[^\s"{}\[\],:]*')
# as far as the next bracket, over all strings that end within the buffer
_NO_BRACKET = re.compile(rb'(?:[^"{}\[\]]+|"[^"\\]*(?:\\.[^"\\]*)*")*', re.DOTALL)


@dataclass(frozen=True)
class Found:
    """A value at a chosen place; ``raw`` None: it is too long."""

    path: Path
    raw: bytes | None


class Document:
    """One document, read once. ``lists`` are the paths of the lists that were looked into.

    Only the way to the chosen places is parsed here; of all else the end is found and no more, so
    that a bad value spoils no other one.
    """

    def __init__(self, stream: BinaryIO, places: Sequence[Place]) -> None:
        self.lists: set[Path] = set()
        self._stream = stream
        self._places = list(places)
        self._buffer = b""
        self._at = 0
        self._kept: bytearray | None = None
        self._kept_from = 0

    def values(self) -> Iterator[Found]:
        """Yield what stands at the chosen places; InvalidValue where it is no JSON any more."""
        self._fill()
        if self._buffer.startswith(BYTE_ORDER_MARK):
            self._at = len(BYTE_ORDER_MARK)
        yield from self._values((), self._places)
        if self._peek():
            raise InvalidValue("is not valid JSON: it goes on after its end")

    def _values(self, path: Path, places: list[Place]) -> Iterator[Found]:
        """The value that comes next lies at ``path``; ``places`` go on from there."""
        opening = self._peek()
        if () in places:
            yield Found(path, self._value(MAX_ROW_BYTES))
        elif opening == b"[" and (inner := _rests(places, None)):
            self.lists.add(path)
            yield from self._elements(path, inner)
        elif opening == b"{":
            yield from self._fields(path, places)
        else:
            self._skip()

    def _elements(self, path: Path, places: list[Place]) -> Iterator[Found]:
        self._at += 1
        if self._peek() == b"]":
            self._at += 1
            return
        position = 0
        more = True
        while more:
            yield from self._values((*path, position), places)
            position += 1
            more = self._take(b",]") == b","

    def _fields(self, path: Path, places: list[Place]) -> Iterator[Found]:
        self._at += 1
        if self._peek() == b"}":
            self._at += 1
            return
        more = True
        while more:
            name = self._name()
            self._take(b":")
            if inner := _rests(places, name):
                yield from self._values((*path, name), inner)
            else:
                self._skip()
            more = self._take(b",}") == b","

    def _name(self) -> str:
        if self._peek() != b'"':
            raise InvalidValue("is not valid JSON")
        raw = self._value(_MAX_NAME_BYTES)
        # a name as long as that is none of ours
        return str(parsed(raw)) if raw is not None else ""

    def _take(self, allowed: bytes) -> bytes:
        byte = self._peek()
        if not byte or byte not in allowed:
            raise InvalidValue("is not valid JSON" if byte else "ends in the middle")
        self._at += 1
        return byte

    def _value(self, limit: int) -> bytes | None:
        """Return the next value as it stands, None where it is longer than ``limit``."""
        self._kept, self._kept_from = bytearray(), self._at
        self._skip()
        self._keep()
        raw, self._kept = bytes(self._kept), None
        return raw if len(raw) <= limit else None

    def _skip(self) -> None:
        """Go to the end of the next value. Which bracket closes which is not looked at here."""
        depth = 0
        while True:
            byte = self._peek()
            self._at += 1
            if byte == b'"':
                self._to_end_of_string()
            elif byte and byte in b"[{":
                depth += 1
            elif byte and byte in b"]}" and depth:
                depth -= 1
            elif not byte or byte in b"]},:":
                raise InvalidValue("is not valid JSON" if byte else "ends in the middle")
            else:
                self._run(_SCALAR)
            if not depth:
                return
            self._run(_NO_BRACKET)

    def _to_end_of_string(self) -> None:
        while True:
            self._run(_IN_STRING)
            if self._at == len(self._buffer):
                raise InvalidValue("ends in the middle")
            self._at += 1
            if self._buffer[self._at - 1 : self._at] == b'"':
                return
            # a backslash that the buffer ends with: what it escapes comes with the next one
            self._fill()
            self._at += 1

    def _run(self, pattern: re.Pattern[bytes]) -> None:
        """Go as far as the pattern goes, over as many buffers as it takes."""
        while True:
            found = pattern.match(self._buffer, min(self._at, len(self._buffer)))
            self._at = found.end() if found is not None else self._at
            if self._at < len(self._buffer) or not self._fill():
                return

    def _peek(self) -> bytes:
        """Return the next byte that is no blank; nothing at the end of the file."""
        self._run(_SPACE)
        return self._buffer[self._at : self._at + 1]

    def _fill(self) -> bool:
        """Replace the buffer, all of it read, by what comes next; False at the end."""
        self._keep()
        chunk = self._stream.read(_CHUNK_BYTES)
        if not chunk:
            self._kept_from = self._at
            return False
        self._buffer, self._at, self._kept_from = chunk, 0, 0
        return True

    def _keep(self) -> None:
        # one byte more than is allowed tells that it is too long
        if self._kept is not None and len(self._kept) <= MAX_ROW_BYTES:
            self._kept += self._buffer[self._kept_from : self._at]


def _rests(places: list[Place], step: str | None) -> list[Place]:
    return [place[1:] for place in places if place and place[0] == step]
