"""The formats that can be read, by the names that people choose them by."""

from collections.abc import Iterator
from typing import BinaryIO

from refine.errors import InvalidValue
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

    ``file_agent`` is the name or id of one of several agents in a Letta file. Raises InvalidValue
    (AgentUnclear) if the agent cannot be told, and for other formats, which name none.
    """
    stream.seek(0)
    if file_agent is None:
        yield from READERS[format_](stream)
    elif format_ == "letta":
        yield from letta.read(stream, agent=file_agent)
    else:
        raise InvalidValue(f"files in {format_} format name no agents to choose from")
