"""The formats that can be read, by the names under which people ask for them."""

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
    """Read a file from its beginning, whatever was read of it before."""
    stream.seek(0)
    yield from READERS[format_](stream)
