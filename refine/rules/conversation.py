"""A finished conversation as a platform hands it over: chat completion messages."""

from datetime import datetime
from typing import Any

from refine.errors import InvalidValue
from refine.rules.content import bounded_text, one_line
from refine.rules.instants import instant

ROLES = ("system", "developer", "user", "assistant", "tool")
FIELDS = ("role", "content", "name", "at")

# Other fields of chat completion messages (the last three are from servers of reasoning models),
# accepted and ignored so that a platform can hand over messages as it has them.
IGNORED = (
    *("tool_calls", "tool_call_id", "function_call", "refusal", "annotations", "audio"),
    *("reasoning", "reasoning_details", "reasoning_content"),
)

MAX_MESSAGES = 2_000
MAX_MESSAGE_CHARACTERS = 50_000
MAX_CONVERSATION_CHARACTERS = 500_000


def valid_conversation(messages: object, *, now: datetime) -> list[dict[str, Any]]:
    """Return role, name, time and text of each message with text; InvalidValue names the place."""
    if not isinstance(messages, list) or not messages:
        raise InvalidValue("messages must be a list of at least one message")
    if len(messages) > MAX_MESSAGES:
        raise InvalidValue(
            f"there are {len(messages):,} messages; at most {MAX_MESSAGES:,} are accepted"
        )
    read = [_message(message, f"messages[{n}]", now) for n, message in enumerate(messages)]
    kept = [message for message in read if message["content"] is not None]
    if not kept:
        raise InvalidValue("messages must hold some text")
    characters = sum(len(message["content"]) for message in kept)
    if characters > MAX_CONVERSATION_CHARACTERS:
        raise InvalidValue(
            f"messages have {characters:,} characters; at most "
            f"{MAX_CONVERSATION_CHARACTERS:,} are accepted"
        )
    return kept


def _message(message: object, place: str, now: datetime) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise InvalidValue(f"{place} must be an object with role and content")
    if not message.keys() <= {*FIELDS, *IGNORED}:
        raise InvalidValue(f"{place} has an unknown field; known fields: {', '.join(FIELDS)}")
    if message.get("role") not in ROLES:
        raise InvalidValue(f"{place}.role must be one of {', '.join(ROLES)}")
    kept: dict[str, Any] = {"role": message["role"]}
    if message.get("name") is not None:
        kept["name"] = one_line(message["name"], field=f"{place}.name")
    if (at := instant(message.get("at"), now=now, field=f"{place}.at")) is not None:
        kept["at"] = at.isoformat(timespec="seconds")
    return {**kept, "content": _content(message.get("content"), f"{place}.content")}


def _content(content: object, place: str) -> str | None:
    if isinstance(content, list):
        content = "\n".join(text for part in content for text in _texts_of(part, place))
    if content is None or (isinstance(content, str) and not content.strip()):
        return None
    return bounded_text(content, field=place, limit=MAX_MESSAGE_CHARACTERS)


def _texts_of(part: object, place: str) -> list[str]:
    if isinstance(part, dict) and isinstance(part.get("type"), str):
        if part["type"] != "text":
            return []
        if isinstance(part.get("text"), str):
            return [part["text"]]
    raise InvalidValue(f'{place} must be text, or a list of parts {{"type": "text", "text": …}}')
