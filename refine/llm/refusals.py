"""What a provider's refusal says, as far as it can be repeated: its codes, and nothing else.

Providers quote prompts in their error messages, so no prose is ever shown. A code is shown if it
has the form of one and stands nowhere in what the model was shown; a parameter, if the request has
fields of these names.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

# invalid_request_error, INVALID_ARGUMENT, context-length-exceeded: words, joined
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+){1,8}")
_MAX_CODE_CHARACTERS = 60
# Codes of one word.
_WORDS = frozenset({"refusal", "timeout", "overloaded", "moderation"})

_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:(?:\.[A-Za-z0-9_]+)|(?:\[\d{1,4}\])){0,12}")
_NAME_IN_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_PARAMETER_CHARACTERS = 120

# Where providers put them: OpenAI, Anthropic, Mistral; Gemini's ``status``; OpenRouter's metadata.
_CODE_NAMES = ("code", "type", "status", "error_type")


def said_about_refusal(body: bytes, asked: Any) -> str:
    """Return the codes and the parameter that a refusal names, such as ``code unsupported_value``.

    Empty if it names none that can be shown. ``asked`` is the refused request.
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    shown: dict[str, str] = {}
    for error in _errors_in(answer):
        for name in _CODE_NAMES:
            if _is_code(error.get(name), asked) and error[name] not in shown.values():
                shown.setdefault(name, error[name])
        if _is_parameter(error.get("param"), asked):
            shown.setdefault("param", error["param"])
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def _errors_in(answer: Any) -> Iterator[Mapping[str, Any]]:
    """The objects in which providers describe an error, the innermost first."""
    if isinstance(answer, list):  # Gemini wraps it in a list
        answer = answer[0] if answer else None
    if not isinstance(answer, Mapping):
        return
    error = answer.get("error")
    if isinstance(error, Mapping):
        yield error
        if isinstance(error.get("metadata"), Mapping):
            yield error["metadata"]
    yield answer


def _is_code(value: Any, asked: Any) -> bool:
    if not isinstance(value, str) or len(value) > _MAX_CODE_CHARACTERS:
        return False
    has_form = value in _WORDS or _CODE.fullmatch(value) is not None
    return has_form and not any(value.casefold() in text.casefold() for text in _texts(asked))


def _is_parameter(value: Any, asked: Any) -> bool:
    if not isinstance(value, str) or len(value) > _MAX_PARAMETER_CHARACTERS:
        return False
    names = set(_NAME_IN_PARAMETER.findall(value))
    return _PARAMETER.fullmatch(value) is not None and names <= set(_field_names(asked))


def _texts(asked: Any) -> Iterator[str]:
    """All that the model was shown."""
    messages = asked.get("messages") if isinstance(asked, Mapping) else None
    yield json.dumps(messages, ensure_ascii=False)


def _field_names(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield name
            yield from _field_names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _field_names(inner)
