"""A finished conversation as a platform hands it over: messages as chat completions have them."""

from datetime import datetime
from typing import Any

from refine.errors import InvalidValue
from refine.rules.content import bounded_text, one_line
from refine.rules.instants import instant

ROLES = ("system", "developer", "user", "assistant", "tool")
FIELDS = ("role", "content", "name", "at")

MAX_MESSAGES = 2_000
MAX_MESSAGE_CHARACTERS = 50_000
MAX_CONVERSATION_CHARACTERS = 500_000


def valid_conversation(messages: object, *, now: datetime) -> list[dict[str, Any]]:
    """Return the messages as they are kept: role, name and time where given, content as one text.

    Content is a text, or a list of text parts. Raises InvalidValue for everything else, for fields
    that are not known, and for more than 2,000 messages, 50,000 characters in one or 500,000 in
    all; the error names the place, and does not repeat what stands there.
    """
    if not isinstance(messages, list) or not messages:
        raise InvalidValue("conversation must be a list of at least one message")
    if len(messages) > MAX_MESSAGES:
        raise InvalidValue(
            f"conversation has {len(messages):,} messages; at most {MAX_MESSAGES:,} are taken"
        )
    kept = [_message(message, f"conversation[{n}]", now) for n, message in enumerate(messages)]
    characters = sum(len(message["content"]) for message in kept)
    if characters > MAX_CONVERSATION_CHARACTERS:
        raise InvalidValue(
            f"conversation has {characters:,} characters; at most "
            f"{MAX_CONVERSATION_CHARACTERS:,} are taken"
        )
    return kept


def _message(message: object, place: str, now: datetime) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise InvalidValue(f"{place} must be an object with role and content")
    if not message.keys() <= set(FIELDS):
        raise InvalidValue(f"{place} has a field that is not known; it takes: {', '.join(FIELDS)}")
    if message.get("role") not in ROLES:
        raise InvalidValue(f"{place}.role must be one of {', '.join(ROLES)}")
    kept: dict[str, Any] = {"role": message["role"]}
    if message.get("name") is not None:
        kept["name"] = one_line(message["name"], field=f"{place}.name")
    if (at := _instant(message.get("at"), f"{place}.at", now)) is not None:
        kept["at"] = at.isoformat(timespec="seconds")
    return {**kept, "content": _content(message.get("content"), f"{place}.content")}


def _instant(value: object, place: str, now: datetime) -> datetime | None:
    try:
        return instant(value, now=now)
    except InvalidValue as error:
        raise InvalidValue(f"{place} {error}") from None


def _content(content: object, place: str) -> str:
    if isinstance(content, list):
        content = "\n".join(_text_of(part, place) for part in content)
    return bounded_text(content, field=place, limit=MAX_MESSAGE_CHARACTERS)


def _text_of(part: object, place: str) -> str:
    is_text = isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text"
    if not is_text or not isinstance(part["text"], str):  # type: ignore[index]
        raise InvalidValue(f'{place} must be text, or a list of {{"type": "text", "text": …}}')
    return str(part["text"])  # type: ignore[index]
