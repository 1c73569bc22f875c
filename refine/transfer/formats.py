"""The formats that can be read, by name: a new one is a module with a reader, and a line here."""

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from refine.transfer import letta, mcp, mem0, own
from refine.transfer.rows import Reader, Row


class Format(NamedTuple):
    """A reader, and in a few words which files it reads."""

    read: Reader
    files: str


FORMATS = {
    "letta": Format(letta.read, "an agent file (.af) of one agent, or passages from its API"),
    "mem0": Format(mem0.read, "JSON from get_all, all pages in one list"),
    "mcp": Format(mcp.read, "the memory server's JSON Lines"),
    "refine": Format(own.read, "a full export of Refine"),
}


def rows_of(stream: BinaryIO, format_: str) -> Iterator[Row]:
    """Yield the rows of a file, from its beginning."""
    stream.seek(0)
    yield from FORMATS[format_].read(stream)
