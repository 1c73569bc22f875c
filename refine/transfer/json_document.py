"""Values at chosen places of a JSON document, one at a time, however large the document is."""

import codecs
import re
from collections.abc import Iterator, Sequence
from json import JSONDecodeError
from typing import Any, BinaryIO, NamedTuple

from refine.errors import InvalidValue
from refine.rules.strict_json import strict_json_at
from refine.transfer.json_lines import BYTE_ORDER_MARK, MAX_FIELDS, MAX_ROW_BYTES, TOO_LONG
from refine.transfer.rows import Found

# The way to a value: names of fields, None for each element of a list.
Place = tuple[str | None, ...]
Path = tuple[str | int, ...]

_CHUNK_BYTES = 65_536
_MAX_DEPTH_AROUND_ROWS = 200
_MAX_BYTES_OF_CHARACTER = 4
_DAMAGED = "is not valid JSON in UTF-8: it is damaged or was cut off"

_BLANKS = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"[^ \t\r\n,\]}]*")
_UP_TO_MARK = re.compile(r'[^"\[\]{}]*')
_IN_STRING = re.compile(r'(?>[^"\\]+|\\.)*', re.DOTALL)
_AFTER_VALUE = frozenset(",:]} \t\r\n")
_DEPTH_CHANGES = {"[": 1, "{": 1, "]": -1, "}": -1, '"': 0}

# What seems to end or to be damaged this close to the end of what was read may only be cut off
# there: "-Infinity", half a pair of escapes, a number.
_LONGEST_CUT = 12
_UNTERMINATED = "Unterminated string"


class Element(NamedTuple):
    """A value at a chosen place; ``problem`` says why it cannot be used."""

    path: Path
    value: Any
    problem: str | None


def values_at(stream: BinaryIO, *places: str) -> Iterator[Found]:
    """Yield the values at these places of a JSON document, one at a time.

    "results.item" is each element of the list under "results", "item" that of a document which is
    a list. Raises InvalidValue where the document is damaged.
    """
    named = {tuple(None if part == "item" else part for part in p.split(".")): p for p in places}
    for path, value, problem in Document(stream, list(named)).elements():
        place = tuple(None if isinstance(part, int) else part for part in path)
        number = next((part + 1 for part in reversed(path) if isinstance(part, int)), 1)
        yield Found(named[place], number, value, problem)


class Document:
    """One document, read once. ``lists`` holds the paths of the lists whose elements were read."""

    def __init__(self, stream: BinaryIO, places: Sequence[Place]) -> None:
        self.lists: set[Path] = set()
        self._text = _Text(stream)
        self._places = frozenset(places)

    def elements(self) -> Iterator[Element]:
        """Yield the values at the chosen places; InvalidValue where the document is damaged.

        A value that breaks a limit or repeats a key is an Element with a ``problem``, and reading
        continues. Memory is bounded by the largest row that is allowed.
        """
        yield from self._value((), ())
        if self._text.next():
            raise InvalidValue(_DAMAGED)

    def _value(self, path: Path, place: Place) -> Iterator[Element]:
        if place in self._places:
            yield Element(path, *self._text.value())
        elif (opening := self._text.next()) not in ("[", "{"):
            self._text.value()
        elif len(path) == _MAX_DEPTH_AROUND_ROWS:
            raise InvalidValue("is nested too deep")
        elif opening == "[":
            yield from self._list(path, (*place, None))
        else:
            yield from self._object(path, place)

    def _list(self, path: Path, place: Place) -> Iterator[Element]:
        if place in self._places:
            self.lists.add(path)
        for number in self._text.steps("[", "]"):
            yield from self._value((*path, number), place)

    def _object(self, path: Path, place: Place) -> Iterator[Element]:
        for _ in self._text.steps("{", "}"):
            key = self._text.key()
            yield from self._value((*path, key), (*place, key))


class _Refused(InvalidValue):
    """A value that breaks a rule; the text still stands at its beginning."""


class _Text:
    """The text of a stream; it holds only the part that is still needed."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._held, self._at = "", 0
        self._bytes = stream.read(len(BYTE_ORDER_MARK)).removeprefix(BYTE_ORDER_MARK)

    def next(self) -> str:
        """Return the next character that is not blank; "" at the end."""
        return self._after(_BLANKS)

    def steps(self, opening: str, closing: str) -> Iterator[int]:
        """Count what is between the brackets; the caller reads it."""
        self._take(opening)
        number = 0
        is_over = self.next() == closing and self._take(closing) == closing
        while not is_over:
            yield number
            number += 1
            is_over = self._take(f",{closing}") == closing

    def key(self) -> str:
        """Return the key that comes next, and go past its colon; "" if it breaks a rule."""
        if self.next() != '"':
            raise InvalidValue(_DAMAGED)
        key, _ = self.value()
        self._take(":")
        return key or ""

    def value(self) -> tuple[Any, str | None]:
        """Return the value that comes next, or why it cannot be used, and go past it."""
        self.next()
        try:
            value, self._at = self._parsed()
        except _Refused as refused:
            self._skip()
            return None, str(refused)
        return value, None

    def _parsed(self) -> tuple[Any, int]:
        """Return the value that begins here, and where it ends; read on until it is whole."""
        while True:
            value, end, is_cut = self._attempt()
            if self._size_bytes(end) > MAX_ROW_BYTES:
                raise _Refused(TOO_LONG)
            if end is not None and self._held[end : end + 1] in _AFTER_VALUE:
                return value, end
            if not (is_cut and self._read()):
                break
        if end != len(self._held):
            raise InvalidValue(_DAMAGED)
        return value, end

    def _attempt(self) -> tuple[Any, int | None, bool]:
        """Return what is read of the value, where it ends (None: not yet), and if it may go on."""
        close_to_end = len(self._held) - _LONGEST_CUT
        try:
            value, end = strict_json_at(self._held, self._at, max_fields=MAX_FIELDS)
        except JSONDecodeError as error:
            is_cut = error.pos > close_to_end or error.msg.startswith(_UNTERMINATED)
            return None, None, is_cut
        except InvalidValue as error:
            raise _Refused(str(error)) from None
        return value, end, end > close_to_end

    def _size_bytes(self, end: int | None) -> int:
        """Return the size of what stands from here to ``end``: at least that, if it is small."""
        held = self._held[self._at : end]
        is_small = len(held) * _MAX_BYTES_OF_CHARACTER <= MAX_ROW_BYTES
        return len(held) if is_small else len(held.encode())

    def _skip(self) -> None:
        """Go past a value by its brackets and quotes alone."""
        if self.next() not in _DEPTH_CHANGES:
            self._after(_SCALAR)
            return
        depth = 0
        while True:
            mark = self._after(_UP_TO_MARK)
            if mark == '"':
                self._skip_string()
            else:
                depth += _DEPTH_CHANGES[self._take("[]{}")]
            if depth == 0:
                return

    def _skip_string(self) -> None:
        """Go past a text, however long it is, and hold none of it."""
        self._at += 1
        while (mark := self._after(_IN_STRING)) != '"':
            # a backslash whose character was not read yet, or the end
            if not (mark and self._read()):
                raise InvalidValue(_DAMAGED)
        self._at += 1

    def _take(self, allowed: str) -> str:
        """Return the next character that is not blank, which must be one of these; go past it."""
        found = self.next()
        if not found or found not in allowed:
            raise InvalidValue(_DAMAGED)
        self._at += 1
        return found

    def _after(self, pattern: re.Pattern[str]) -> str:
        """Go past what the pattern matches, and return the character there; "" at the end."""
        while True:
            self._at = pattern.match(self._held, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._held) or not self._read():
                return self._held[self._at : self._at + 1]

    def _read(self) -> bool:
        """Read on, twice as much as is held; tell whether there was anything."""
        chunk = self._stream.read(max(_CHUNK_BYTES, len(self._held) - self._at))
        try:
            text, used = codecs.utf_8_decode(self._bytes + chunk, "strict", not chunk)
        except UnicodeDecodeError as error:
            # never occurs in JSON, so that the document is damaged there
            text, used = error.object[: error.start].decode() + "\0", len(error.object)
        self._bytes = (self._bytes + chunk)[used:]
        self._held, self._at = self._held[self._at :] + text, 0
        return bool(chunk or text)
