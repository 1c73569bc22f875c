"""The formats that can be read, by the names that people choose them by."""

from collections.abc import Iterator
from typing import BinaryIO

from refine.transfer import letta, mcp, mem0, own
from refine.transfer.rows import Reader, Row

READERS: dict[str, Reader] = {
    "letta": letta.read,
    "mem0": mem0.read,
    "mcp": mcp.read,
    "refine": own.read,
}


def rows_of(stream: BinaryIO, format_: str) -> Iterator[Row]:
    """Yield the rows of a file, from its beginning."""
    stream.seek(0)
    yield from READERS[format_](stream)
