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


def rows_of(stream: BinaryIO, format_: str, *, file_agent: str | None = None) -> Iterator[Row]:
    """Yield the rows of a file, from its beginning.

    ``file_agent`` is the name or id of one of several agents in a Letta file. Raises AgentUnclear
    if the agent cannot be told.
    """
    stream.seek(0)
    if format_ == "letta":
        yield from letta.read(stream, agent=file_agent)
    else:
        yield from READERS[format_](stream)
