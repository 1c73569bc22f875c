"""The codes in a refusal that may be shown: providers' messages quote prompts."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from werkzeug.http import parse_date

from refine import clock
from refine.rules.received_json import answered_json

_FILE = Path(__file__).with_name("refusal_codes.toml")
_CODES = frozenset(" ".join(tomllib.loads(_FILE.read_text(encoding="utf-8")).values()).split())
# The parameters that requests have.
_FIELDS = (
    "cache_control max_completion_tokens max_tokens messages model plugins prompt_cache_key "
    "provider session_id stream tool_choice tools user"
)

# Where providers put codes: OpenAI, Anthropic, Mistral; Gemini; OpenRouter's metadata; Gemini's
# details. The objects that have them stand at the top or under the second names, in lists (Gemini,
# FastAPI) or not; only the first few are read.
_CODE_NAMES = ("code", "type", "status", "error_type", "reason")
_NESTED_NAMES = ("error", "metadata", "availability", "details", "detail", "message")
_MAX_OBJECTS = 10

# A refusal that another attempt may avoid: the model wrote a call that the provider refused (Groq).
_RETRIED_CODES = frozenset({"tool_use_failed"})


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


def parse_refusal(body: bytes) -> Refusal:
    """Return the showable parts of a refusal, if it has any."""
    shown: dict[str, str] = {}
    for error in _objects_in(body):
        for name in _CODE_NAMES:
            code = str(error[name]) if type(error.get(name)) in (int, str) else ""
            if code in _CODES and code not in shown.values():
                shown.setdefault(name, code)
        parameter = _parameter(error.get("param", error.get("loc")))
        if parameter in _FIELDS.split():
            shown.setdefault("param", parameter)
    return Refusal(shown)


def _objects_in(body: bytes) -> list[Mapping[str, Any]]:
    try:
        left = [answered_json(body)]
    except ValueError:
        return []
    found: list[Mapping[str, Any]] = []
    while left and len(found) < _MAX_OBJECTS:
        each = left.pop(0)
        if isinstance(each, list):
            left += each[:_MAX_OBJECTS]
        elif isinstance(each, Mapping):
            found.append(each)
            left += [each[name] for name in _NESTED_NAMES if name in each]
    return [*found[1:], *found[:1]]


def _parameter(value: Any) -> str:
    if isinstance(value, list):  # a path of FastAPI, beginning with the part of the request
        value = next(iter(value[value[:1] == ["body"] :]), None)
    return re.split(r"[.\[]", value, maxsplit=1)[0] if isinstance(value, str) else ""


def retry_after_seconds(headers: Mapping[str, str], *names: str) -> float | None:
    """Return the seconds that these headers ask for; a date counts from the server's ``Date``."""
    given = next((headers[name].strip() for name in names if name in headers), "")
    if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", given):  # decimals are no standard, but used
        return float(given)
    until = parse_date(given)
    if until is None:
        return None
    seconds = (until - (parse_date(headers.get("Date")) or clock.now())).total_seconds()
    return seconds if seconds > 0 else None
