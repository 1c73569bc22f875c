"""What the tools share: definitions, results as a model reads them, one transaction per call."""

from collections.abc import Callable, Iterable
from reprlib import repr as short_repr
from typing import Any

from refine.extensions import db
from refine.outages import NO_RETRY, Done, RetryPolicy, commit_once

Result = dict[str, Any]

# How much of a wrong word is quoted back.
_MAX_QUOTED = 60


def function_definition(
    name: str, description: str, properties: dict[str, Any], required: Iterable[str] | None = None
) -> dict[str, Any]:
    """Return a function definition for a chat completion; by default all properties are required.

    OpenAI's strict mode demands that; our tools do without most of them.
    """
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def in_one_call(
    work: Callable[[], Done],
    retry: RetryPolicy = NO_RETRY,
    is_done: Callable[[], bool] | None = None,
) -> Done:
    """Commit what a tool call does, with ``commit_once``; undo it if it raises.

    What the caller left uncommitted is committed before.
    """
    if db.session().in_transaction():
        db.session.commit()
    return commit_once(work, retry, is_done)


def error(message: str, **facts: Any) -> Result:
    """Return the result that says what is wrong and what to do."""
    return {"type": "error", "error": message, **facts}


def without_echo(result: Result, arguments: dict[str, Any]) -> Result:
    """Return the result without the texts of the call itself, which the model would pay for twice.

    Ids stay, and so does what differs from what the model wrote.
    """
    said = [value for value in arguments.values() if isinstance(value, str)]
    return {name: value for name, value in result.items() if name == "type" or value not in said}


def invalid(name: str, value: object) -> str:
    """Return the message for a parameter with a value that is not allowed."""
    try:
        shown = value if isinstance(value, str) else short_repr(value)
    except ValueError:  # a number of thousands of digits
        shown = "a long number"
    return f"Invalid {name} '{shown[:_MAX_QUOTED]}'"


def missing(name: str, taker: str) -> str:
    """Return the message for a parameter that a tool, or one action of it, needs."""
    return f"{name} is required for {taker}"


def unknown_parameter(taker: str, allowed: Iterable[str]) -> str:
    """Return the message for a parameter that a tool, or one action of it, does not take."""
    return f"unknown parameter; {taker} takes: {', '.join(allowed)}"
