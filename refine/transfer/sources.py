"""What is read: a file, or each file of a folder or a zip, as UTF-8 whatever its mark says."""

import binascii
import codecs
import io
import os
import re
import zipfile
import zlib
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from refine.errors import InvalidValue
from refine.rules.received_json import only, strict_json_values, unchecked_json_values

MAX_DOCUMENT_BYTES = 256_000_000
MAX_LINE_BYTES = 2_000_000
MAX_FIELDS = 1_000

# The longer marks first: UTF-32's begins with UTF-16's.
_ENCODINGS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

# A picture may hold the JSON of a character card, as Base64 in a chunk of text; a newer one first.
_PNG, _CARD = b"\x89PNG", re.compile(rb"(?s)(.{4})tEXt(ccv3|chara)\0")

_HIDDEN = re.compile(r"\.|__MACOSX")
_JSON = re.compile(rb'\s*(?:\{|"|\[\s*[\[{"\]])')


class Source:
    """A file that can be read from its beginning as often as one likes.

    ``path`` is relative to the folder or zip that holds the file, unless it ``is_alone``. JSON is
    either one document, or a value on each line.
    """

    def __init__(self, path: str, stream: BinaryIO, *, is_alone: bool = False) -> None:
        self.path = PurePosixPath(path)
        self.is_alone = is_alone
        self.is_hidden = not is_alone and any(map(_HIDDEN.match, self.path.parts))
        self._given = stream

    @cached_property
    def _stream(self) -> BinaryIO:
        self._given.seek(0)
        head = self._given.read(4)
        if head == _PNG and (card := _card_in(_read(self._given))) is not None:
            return io.BytesIO(card)
        for mark, encoding in _ENCODINGS:
            if head.startswith(mark):
                self._given.seek(0)
                try:
                    return io.BytesIO(_read(self._given).decode(encoding).encode())
                except UnicodeDecodeError:
                    raise InvalidValue(f"must be valid {encoding.upper()}") from None
        return self._given

    def _from_beginning(self) -> BinaryIO:
        self._stream.seek(0)
        if self._stream.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
            self._stream.seek(0)
        return self._stream

    def head(self, size: int) -> bytes:
        return self._from_beginning().read(size)

    def lines(self) -> Iterator[tuple[int, bytes | None]]:
        """Yield each line that is not blank with its number; None is a line that is too long."""
        stream, number = self._from_beginning(), 0
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                while line and not line.endswith(b"\n"):
                    line = stream.readline(MAX_LINE_BYTES)
                yield number, None
            elif line.strip():
                yield number, line

    def text_lines(self) -> Iterator[tuple[int, str]]:
        """Yield every line of a text, blank ones too; InvalidValue for what is no text."""
        for number, line in enumerate(self._from_beginning(), 1):
            try:
                yield number, line.decode().rstrip("\r\n")
            except UnicodeDecodeError:
                raise InvalidValue(f"must be valid UTF-8, and is not in line {number}") from None

    @cached_property
    def document(self) -> Any:
        """The JSON value, or a list of objects that follow each other, unchecked; InvalidValue."""
        values = unchecked_json_values(_read(self._from_beginning()))
        are_rows = len(values) > 1 and all(isinstance(each, dict) for each in values)
        return values if are_rows else only(values)

    @cached_property
    def has_json_lines(self) -> bool:
        """Whether the first line is an object of its own, or looks like one that is damaged."""
        first, *others = [line for _, line in islice(self.lines(), 2)] or [b""]
        if first is None or not others:
            return bool(others)
        try:
            return isinstance(line_values(first)[0], dict)
        except InvalidValue:
            shapes = (first.lstrip()[:1], first.rstrip()[-1:], (others[0] or b"{").lstrip()[:1])
            return shapes == (b"{", b"}", b"{")

    @cached_property
    def sample(self) -> Any:
        """The document, or the value of the first line that has one; None for what is no JSON."""
        if _JSON.match(self.head(10_000)) is None:
            return None  # a long text is not read as a whole to tell that
        try:
            if not self.has_json_lines:
                return self.document
        except InvalidValue:
            return None
        for _, line in islice(self.lines(), 100):
            try:
                return line_values(line)[0]
            except InvalidValue:
                continue
        return None


@contextmanager
def sources_of(path: Path) -> Iterator[Iterator[Source]]:
    """Give the file, or those of a folder or a zip: sorted."""
    if path.is_dir():
        yield _in_folder(path)
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield _in_zip(archive)
    else:
        with path.open("rb") as stream:
            yield iter([Source(path.name, stream, is_alone=True)])


def _in_folder(folder: Path) -> Iterator[Source]:
    for root, folders, names in os.walk(folder):
        folders.sort()
        for path in (Path(root, name) for name in sorted(names)):
            inner = path.relative_to(folder).as_posix()
            if path.is_symlink() or not path.is_file():
                yield Source(inner, io.BytesIO())  # not followed, and counted
                continue
            with path.open("rb") as stream:
                yield Source(inner, stream)


def _in_zip(archive: zipfile.ZipFile) -> Iterator[Source]:
    for entry in sorted(archive.infolist(), key=lambda entry: entry.filename):
        if not entry.is_dir():
            yield Source(entry.filename, io.BytesIO(_unpacked(archive, entry)))


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    try:
        with archive.open(entry) as packed:
            return _read(packed)
    except (RuntimeError, zipfile.BadZipFile, zlib.error):
        raise InvalidValue("the zip is damaged, or needs a password") from None


def _card_in(picture: bytes) -> bytes | None:
    found = {chunk[2]: chunk for chunk in _CARD.finditer(picture)}
    if (chunk := found.get(b"ccv3", found.get(b"chara"))) is None:
        return None
    with suppress(binascii.Error):
        return b64decode(picture[chunk.end() : chunk.start(2) + int.from_bytes(chunk[1])])
    raise InvalidValue("holds a character card that is damaged")


def _read(stream: Any) -> bytes:
    raw: bytes = stream.read(MAX_DOCUMENT_BYTES + 1)
    if len(raw) > MAX_DOCUMENT_BYTES:
        raise InvalidValue(
            f"is longer than {MAX_DOCUMENT_BYTES:,} bytes: split its rows into several files"
        )
    return raw


def line_values(line: bytes | None) -> list[Any]:
    """Return the JSON values of a line; InvalidValue says what is wrong."""
    if line is None:
        raise InvalidValue(f"must not be longer than {MAX_LINE_BYTES:,} bytes")
    return strict_json_values(line, max_bytes=MAX_LINE_BYTES, max_fields=MAX_FIELDS)
