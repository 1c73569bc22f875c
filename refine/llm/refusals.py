"""What can be repeated of a provider's refusal: its codes, and nothing else.

Providers quote prompts in their error messages, so no prose is ever shown. A code is shown if it
has the form of one and cannot quote what the model was shown; a parameter, if the request has
fields of these names.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from refine.llm.answered_json import answered_json
from refine.rules.quoting import said_in, shares_words

# invalid_request_error, INVALID_ARGUMENT, invalid-argument; RateLimitReached; 3280
_CODE = re.compile(
    r"[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+){1,8}|(?:[A-Z]+[a-z]+){2,6}|[1-9]\d{3,5}"
)
_MAX_CODE_CHARACTERS = 60
# Codes of one word.
_WORDS = frozenset({"refusal", "timeout", "overloaded", "moderation"})

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_PARAMETER = re.compile(rf"{_NAME}(?:\.(?:{_NAME}|\d{{1,4}})|\[\d{{1,4}}\]){{0,12}}")
_MAX_PARAMETER_CHARACTERS = 120
# Each is compared with everything that was sent, so only this many are read.
_MAX_DETAILS = 8

# Where providers put codes: OpenAI, Anthropic, Mistral; Gemini; OpenRouter's metadata; Gemini's
# details.
_CODE_NAMES = ("code", "type", "status", "error_type", "reason")

# A refusal that another attempt may avoid: the model wrote a call that the provider refused (Groq).
_RETRIED_CODES = frozenset({"tool_use_failed"})

# Words of codes, which may also stand in a memory.
_ERROR_WORDS = (
    "access allowed argument assistant authentication body call code completion conflict "
    "connection content context database deadline deprecated disabled endpoint engine error "
    "exceed exceeded exhausted expired extra failed field filter forbidden format found "
    "function gateway input insufficient internal invalid json large length limit malformed "
    "message messages missing model moderation order output overloaded parameter parameters "
    "permission prompt provider quota rate reached refusal request requests required resource "
    "response restricted role safety schema server service size status string supported "
    "system temporarily timeout token tokens tool tools type unauthorized unavailable "
    "unexpected unknown unprocessable unsupported upstream user validation value"
)


@dataclass(frozen=True)
class Refusal:
    """The codes of a refusal and the parameter that it names, by the names they stand under."""

    codes: Mapping[str, str]

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.codes.items())

    @property
    def may_be_retried(self) -> bool:
        """Whether its codes, not its status, tell that another attempt may help."""
        return not _RETRIED_CODES.isdisjoint(self.codes.values())


def parse_refusal(body: bytes, asked: Any) -> Refusal:
    """Return what can be repeated of a refusal of the request ``asked``, which may be nothing."""
    try:
        answer = answered_json(body)
    except ValueError:
        return Refusal({})
    sent = _Sent(asked)
    shown: dict[str, str] = {}
    for error in _errors_in(answer):
        for name in _CODE_NAMES:
            code = _code(error.get(name), sent)
            if code is not None and code not in shown.values():
                shown.setdefault(name, code)
        parameter = _parameter(error.get("param", error.get("loc")), asked)
        if parameter is not None:
            shown.setdefault("param", parameter)
    return Refusal(shown)


def _errors_in(answer: Any) -> Iterator[Mapping[str, Any]]:
    """The objects in which providers describe an error."""
    if isinstance(answer, list):  # Gemini wraps it in a list
        answer = answer[0] if answer else None
    if not isinstance(answer, Mapping):
        return
    error, message = answer.get("error"), answer.get("message")
    if isinstance(error, Mapping):
        yield error
        yield from _mapping(error.get("metadata"))
        if isinstance(error.get("details"), list):
            for detail in error["details"][:_MAX_DETAILS]:
                yield from _mapping(detail)
    # validation errors of FastAPI, bare or inside a message (Mistral)
    for detail in (answer, message):
        if isinstance(detail, Mapping) and isinstance(detail.get("detail"), list):
            yield from _mapping(next(iter(detail["detail"]), None))
    yield answer


def _mapping(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        yield value


class _Sent:
    """What the model was shown; read once, because a ledger is long."""

    def __init__(self, asked: Any) -> None:
        self._asked = asked

    def has_words_of(self, code: str) -> bool:
        is_part = code.casefold() in self._text
        return is_part or shares_words(code, self._words, known=_ERROR_WORDS.split())

    @cached_property
    def _text(self) -> str:
        messages = self._asked.get("messages") if isinstance(self._asked, Mapping) else None
        return json.dumps(messages, ensure_ascii=False).casefold()

    @cached_property
    def _words(self) -> set[str]:
        return said_in(self._text)


def _code(value: Any, sent: _Sent) -> str | None:
    if type(value) is int:
        value = str(value)
    if not isinstance(value, str) or len(value) > _MAX_CODE_CHARACTERS:
        return None
    has_form = value in _WORDS or _CODE.fullmatch(value) is not None
    return value if has_form and not sent.has_words_of(value) else None


def _parameter(value: Any, asked: Any) -> str | None:
    if isinstance(value, list):  # a path of FastAPI, beginning with the part of the request
        value = ".".join(str(part) for part in value[value[:1] == ["body"] :])
    if not isinstance(value, str) or len(value) > _MAX_PARAMETER_CHARACTERS:
        return None
    names = set(re.findall(_NAME, value))
    is_known = _PARAMETER.fullmatch(value) is not None and names <= set(_field_names(asked))
    return value if is_known else None


def _field_names(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield name
            yield from _field_names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _field_names(inner)
