"""Requests as a session sends them to its model."""

from datetime import date
from typing import Any

from bench.simulated_models import Conversation
from refine.prompts import as_entry, as_line
from refine.rules.content import token_estimate

Exchange = tuple[dict[str, Any], dict[str, Any]]


def conversation(*contents: str, exchanges: tuple[Exchange, ...] = ()) -> Conversation:
    """Return the request after consent, with these memories, whose ids begin at 1.

    ``exchanges`` are the calls that were made, each with its result.
    """
    messages = [
        {"role": "user", "content": "\n".join(map(_line, range(1, len(contents) + 1), contents))},
        {"role": "assistant", "content": "YES"},
        {"role": "user", "content": "At most 50 of 200 tokens may be removed."},
    ]
    for number, (arguments, result) in enumerate(exchanges):
        messages += _exchange(f"call_{number}", arguments, result)
    return Conversation(messages)


def _line(id_: int, content: str) -> str:
    return as_entry(
        {
            "id": id_,
            "date": date(2026, 3, id_ % 28 + 1).isoformat(),
            "tokens": token_estimate(content),
            "constitutional": False,
            "tags": [],
            "content": content,
        }
    )


def _exchange(id_: str, arguments: dict[str, Any], result: dict[str, Any]) -> list[dict[str, Any]]:
    function = {"name": "refinement", "arguments": as_line(arguments)}
    call = {"id": id_, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": id_, "content": as_line(result)},
    ]
