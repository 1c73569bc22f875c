"""Second readings of edits, by readers that know what was planted, or that find nothing."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from bench.corpus import World
from bench.saying import saying_of

SECOND_READING = "second_reading"

Case = dict[str, Any]
# From one case to what its edit leaves out.
Read = Callable[[Case], list[str]]


def finds_nothing(_case: Case) -> list[str]:
    """Wave every edit through."""
    return []


def honest(worlds: Sequence[World]) -> Read:
    """Return a reader that names what was said before, and nowhere afterwards."""

    def read(case: Case) -> list[str]:
        before = _told(case["before"])
        after = _told(case["after"] if "after" in case else case["kept"])
        return [
            saying.text
            for world in worlds
            for saying in map(saying_of, world.memories)
            if any(map(saying.stands_in, before)) and not any(map(saying.stands_in, after))
        ]

    return read


def read_all(messages: list[dict[str, Any]], read: Read) -> dict[str, Any]:
    """Return the arguments of the call that answers a request for second readings."""
    texts = (each["content"] for each in messages if each["role"] == "user")
    lines = (line for text in texts for line in text.split("\n") if line.startswith('{"case":'))
    verdicts = [
        {"case": case["case"], "leaves_out": read(case), "adds": [], "changes": []}
        for case in map(json.loads, lines)
    ]
    return {"cases": verdicts}


def _told(said: Any) -> list[str]:
    """Return the new text, or those of memories, each under its date."""
    return [said] if isinstance(said, str) else [text for each in said for text in each.values()]
