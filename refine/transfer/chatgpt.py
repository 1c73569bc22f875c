"""ChatGPT: what it noted about the person, in the conversations of an export."""

from collections.abc import Iterator
from typing import Any

from refine.rules.received_json import at
from refine.transfer.rows import BLANK, Incoming, LeftOut, Row, Wanted, first_of, rows_in, time_in
from refine.transfer.sources import Source

# The tool to which the model writes what it wants to keep.
_TOOL = "bio"
# A file beside the conversations.
_OF_FEEDBACK = {"conversation_id", "rating"}


def recognizes(source: Source) -> bool:
    first = first_of(source.sample)
    return isinstance(first.get("mapping"), dict) or first.keys() >= _OF_FEEDBACK


def read(source: Source, _wanted: Wanted) -> Iterator[Row]:
    yield from rows_in(source, _rows)


def _rows(place: str, conversation: dict[str, Any]) -> Iterator[Row]:
    mapping = conversation.get("mapping")
    nodes = mapping.values() if isinstance(mapping, dict) else ()
    messages = (at(node, ("message",)) for node in nodes)
    notes = [each for each in messages if at(each, ("recipient",)) == _TOOL]
    if not notes:
        yield LeftOut("conversations, or feedback, in which nothing was noted")
    for number, note in enumerate(notes, 1):
        parts = at(note, ("content", "parts")) or [at(note, ("content", "text"))]
        text = "\n".join(part for part in parts if isinstance(part, str))
        if text.strip():
            when = time_in(note, "create_time") or time_in(conversation, "create_time")
            yield Incoming(place=f"{place}, note {number}", content=text, created_at=when)
        else:
            yield LeftOut(BLANK)
