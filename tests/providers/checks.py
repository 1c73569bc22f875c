"""The kinds of rule that providers check in a request.

A check looks at a whole request and returns the place that breaks its rule, or None.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft7Validator, SchemaError

Message = dict[str, Any]

FUNCTION_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
LIMITS = ("max_tokens", "max_completion_tokens")
CACHE_MARKS = ("cache_control", "prompt_cache_breakpoint")


@dataclass(frozen=True)
class Asked:
    """A request, and what the provider said before it; header names are in small letters."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    said: tuple[Message, ...] = ()

    @property
    def messages(self) -> list[Message]:
        given = self.body.get("messages")
        return [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []

    def of_role(self, role: str) -> Iterator[tuple[int, Message]]:
        """The messages of this role, each with its position."""
        return ((n, each) for n, each in enumerate(self.messages) if each.get("role") == role)

    def repeated(self) -> Iterator[tuple[int, Message, Message]]:
        """The messages that repeat one that was said: position, as it is now, as it was."""
        for position, message in self.of_role("assistant"):
            for original in self.said:
                if _is_of(message, original):
                    yield position, message, original
                    break


Check = Callable[[Asked], str | None]
Kind = tuple[str, Check]


@dataclass(frozen=True)
class Rule:
    """Something that a provider refuses, and where that is documented."""

    name: str
    source: str
    check: Check


def rule(source: str, kind: Kind) -> Rule:
    """Return one rule of a provider, from what a kind of rule returns."""
    name, check = kind
    return Rule(name, source, check)


# -- headers and body ---------------------------------------------------------------------------


def has_key() -> Kind:
    def check(asked: Asked) -> str | None:
        scheme, _, key = asked.headers.get("authorization", "").partition(" ")
        return None if scheme == "Bearer" and key else "authorization"

    return "names a key", check


def names_model(model: str) -> Kind:
    def check(asked: Asked) -> str | None:
        return None if asked.body.get("model") == model else "model"

    return "names a model that is served", check


def has_only(fields: Collection[str]) -> Kind:
    """Unknown fields of the body are refused."""

    def check(asked: Asked) -> str | None:
        return next((field for field in asked.body if field not in fields), None)

    return "has only known fields", check


def has_only_in(field: str, keys: Collection[str]) -> Kind:
    """Unknown keys of one object in the body are refused."""

    def check(asked: Asked) -> str | None:
        given = asked.body.get(field) or {}
        return next((f"{field}.{key}" for key in given if key not in keys), None)

    return f"has only known keys in {field}", check


def limits_output(*names: str) -> Kind:
    """The output is limited, under a name that the provider knows; another would be ignored."""

    def check(asked: Asked) -> str | None:
        limits = [asked.body.get(name) for name in names]
        is_limited = any(type(limit) is int and limit > 0 for limit in limits)
        return None if is_limited else names[0]

    return "limits the output", check


def has_no_limit_named(name: str) -> Kind:
    def check(asked: Asked) -> str | None:
        return name if name in asked.body else None

    return f"does not name {name}", check


def has_no_empty_tools() -> Kind:
    def check(asked: Asked) -> str | None:
        return "tools" if asked.body.get("tools") == [] else None

    return "has no empty list of tools", check


# -- messages ------------------------------------------------------------------------------------


def has_only_in_messages(fields: Mapping[str, Collection[str]]) -> Kind:
    """Unknown fields of messages are refused, by role; so are unknown roles."""

    def check(asked: Asked) -> str | None:
        for position, message in enumerate(asked.messages):
            known = fields.get(message.get("role", ""), ())
            for field in message:
                if field not in known:
                    return f"messages[{position}].{field}"
        return None

    return "has only known fields in messages", check


def has_only_in_calls(fields: Collection[str]) -> Kind:
    def check(asked: Asked) -> str | None:
        for where, call in _calls(asked):
            for field in call:
                if field not in fields:
                    return f"{where}.{field}"
        return None

    return "has only known fields in tool calls", check


def writes_beside_calls(*allowed: str) -> Kind:
    """What may stand for the content beside tool calls: words always, null, empty, absent."""

    def check(asked: Asked) -> str | None:
        for position, message in asked.of_role("assistant"):
            if message.get("tool_calls") and _content_kind(message) not in (*allowed, "words"):
                return f"messages[{position}].content"
        return None

    refused = next(kind for kind in ("null", "absent", "empty") if kind not in allowed)

    return f"has no {refused} content beside tool calls", check


def says_something() -> Kind:
    """An assistant's message has words or calls."""

    def check(asked: Asked) -> str | None:
        for position, message in asked.of_role("assistant"):
            if not message.get("content") and not message.get("tool_calls"):
                return f"messages[{position}].content"
        return None

    return "has no empty message of the assistant", check


def has_text_content(*roles: str) -> Kind:
    """The content of these roles is one text, not a list of parts."""

    def check(asked: Asked) -> str | None:
        for role in roles:
            for position, message in asked.of_role(role):
                if isinstance(message.get("content"), list):
                    return f"messages[{position}].content"
        return None

    return f"has text as the content of {' and '.join(roles)}", check


def has_no_cache_marks() -> Kind:
    def check(asked: Asked) -> str | None:
        written = json.dumps(asked.body.get("messages"))
        return next((mark for mark in CACHE_MARKS if f'"{mark}":' in written), None)

    return "has no cache marks in messages", check


def has_at_most_marks(most: int) -> Kind:
    """The number of cache marks in the messages is limited."""

    def check(asked: Asked) -> str | None:
        written = json.dumps(asked.body.get("messages"))
        marks = sum(written.count(f'"{mark}":') for mark in CACHE_MARKS)
        return "cache_control" if marks > most else None

    return f"has at most {most} cache marks", check


def never_follows(role: str, previous: str) -> Kind:
    def check(asked: Asked) -> str | None:
        roles = [message.get("role") for message in asked.messages]
        for position, pair in enumerate(zip(roles, roles[1:], strict=False)):
            if pair == (previous, role):
                return f"messages[{position + 1}].role"
        return None

    return f"has no {role} directly after {previous}", check


def ends_with(*roles: str) -> Kind:
    """The last message is of one of these roles."""

    def check(asked: Asked) -> str | None:
        last = asked.messages[-1].get("role") if asked.messages else None
        return None if last in roles else "messages"

    return f"ends with {' or '.join(roles)}", check


# -- tool calls and reasoning ----------------------------------------------------------------------


def answers_every_call() -> Kind:
    """Results follow their calls at once, one for each, and none is of an unknown call."""

    def check(asked: Asked) -> str | None:
        open_ids: list[Any] = []
        for position, message in enumerate(asked.messages):
            if message.get("role") == "tool":
                if message.get("tool_call_id") not in open_ids:
                    return f"messages[{position}].tool_call_id"
                open_ids.remove(message["tool_call_id"])
            elif open_ids:
                return f"messages[{position}]"
            else:
                open_ids = [call.get("id") for call in message.get("tool_calls") or []]
        return "messages" if open_ids else None

    return "answers every call", check


def has_call_ids(pattern: str) -> Kind:
    """The ids of calls have a form of the provider's."""
    known = re.compile(pattern)

    def check(asked: Asked) -> str | None:
        for where, call in _calls(asked):
            if not known.fullmatch(str(call.get("id"))):
                return f"{where}.id"
        return None

    return "has ids of calls in its form", check


def has_valid_arguments() -> Kind:
    """The arguments of a call in the history are one JSON object, written as a string."""

    def check(asked: Asked) -> str | None:
        for where, call in _calls(asked):
            try:
                is_object = isinstance(json.loads(call["function"]["arguments"]), dict)
            except (ValueError, TypeError, KeyError):
                is_object = False
            if not is_object:
                return f"{where}.function.arguments"
        return None

    return "repeats valid arguments", check


def repeats(field: str) -> Kind:
    """A message with tool calls carries this field as it was said, even where it was empty."""

    def check(asked: Asked) -> str | None:
        for position, message, original in asked.repeated():
            if original.get("tool_calls") and message.get(field) != original.get(field):
                return f"messages[{position}].{field}"
        return None

    return f"repeats {field} beside tool calls", check


def repeats_in_calls(field: str) -> Kind:
    """Each call carries this field as it was said."""

    def check(asked: Asked) -> str | None:
        for position, message, original in asked.repeated():
            pairs = zip(message.get("tool_calls", []), original.get("tool_calls", []), strict=False)
            for number, (call, was) in enumerate(pairs):
                if call.get(field) != was.get(field):
                    return f"messages[{position}].tool_calls[{number}].{field}"
        return None

    return f"repeats {field} in tool calls", check


# -- tools -----------------------------------------------------------------------------------------


def has_valid_tools() -> Kind:
    """Each tool is a function with a name of the usual form and a valid schema."""

    def check(asked: Asked) -> str | None:
        for number, tool in enumerate(asked.body.get("tools") or []):
            function = tool.get("function", {})
            if not FUNCTION_NAME.fullmatch(str(function.get("name"))):
                return f"tools[{number}].function.name"
            try:
                Draft7Validator.check_schema(function.get("parameters", {}))
            except SchemaError:
                return f"tools[{number}].function.parameters"
        return None

    return "has valid tools", check


def has_no_keywords(*keywords: str) -> Kind:
    """The schemas of tools have none of these keywords."""

    def check(asked: Asked) -> str | None:
        written = json.dumps([_parameters(tool) for tool in asked.body.get("tools") or []])
        return next((f"tools.{word}" for word in keywords if f'"{word}":' in written), None)

    return f"has no {', '.join(keywords)} in tools", check


def has_single_types() -> Kind:
    """No schema of a tool gives a list of types."""

    def check(asked: Asked) -> str | None:
        for number, tool in enumerate(asked.body.get("tools") or []):
            if any(isinstance(each.get("type"), list) for each in _schemas(_parameters(tool))):
                return f"tools[{number}].function.parameters"
        return None

    return "has one type for each parameter", check


# -- helpers ---------------------------------------------------------------------------------------


def _is_of(message: Message, original: Message) -> bool:
    """Whether a message of a request repeats what was said: the same calls, or the same words."""
    ids, original_ids = _ids(message), _ids(original)
    if ids or original_ids:
        return ids == original_ids
    return bool(message.get("content") == original.get("content"))


def _ids(message: Message) -> list[Any]:
    return [call.get("id") for call in message.get("tool_calls") or []]


def _content_kind(message: Message) -> str:
    if "content" not in message:
        return "absent"
    if message["content"] is None:
        return "null"
    return "words" if message["content"] else "empty"


def _calls(asked: Asked) -> Iterator[tuple[str, dict[str, Any]]]:
    """The calls of all messages, each with its place."""
    for position, message in asked.of_role("assistant"):
        for number, call in enumerate(message.get("tool_calls") or []):
            yield f"messages[{position}].tool_calls[{number}]", call


def _parameters(tool: dict[str, Any]) -> dict[str, Any]:
    parameters = tool.get("function", {}).get("parameters", {})
    return parameters if isinstance(parameters, dict) else {}


def _schemas(value: Any) -> Iterator[dict[str, Any]]:
    """The schema and all schemas in it."""
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from _schemas(each)
    elif isinstance(value, list):
        for each in value:
            yield from _schemas(each)
