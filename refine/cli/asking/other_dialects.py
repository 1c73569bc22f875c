"""Finds out what a server refused: the dialect, or tools at all."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from refine.cli.asking.trial import Trial
from refine.llm import dialects
from refine.llm.dialects import Dialect
from refine.llm.provider import Provider

# Tried first where a refusal names one of these fields of the request.
_POINTED_TO_BY: Final[dict[str, tuple[str, ...]]] = {
    "max_completion_tokens": ("plain", "alibaba"),
    "max_tokens": ("openai", "groq"),
    "content": ("plain", "alibaba", "groq"),
    **dict.fromkeys(("reasoning", "reasoning_details"), ("alibaba", "openai")),
    "reasoning_content": ("deepseek", "alibaba", "openai"),
    **dict.fromkeys(("provider", "plugins", "session_id", "user", "cache_control"), ("plain",)),
}
# Tried then: both names of the output limit, with and without "" beside tool calls, with and
# without the reasoning of earlier answers; none has fields of its own.
_COMMON: Final = ("plain", "alibaba", "openai", "groq")

_PARAMETER = re.compile(r"\bparam ([\w.\[\]]+)")
_NAME = re.compile(r"[A-Za-z_]+")


def dialect_of_host(provider: Provider) -> Dialect | None:
    """Return the dialect of the provider's own host; None if the host is nobody's."""
    return dialects.of_known_host(urlsplit(provider.base_url).hostname or "")


def may_help(trial: Trial) -> bool:
    """Tell whether another dialect could help after the trial's fault."""
    was_refused = trial.fault is not None and trial.fault.kind == "invalid_request"
    return was_refused and dialect_of_host(trial.provider) is not trial.provider.dialect


def accepted_dialect(trial: Trial) -> Dialect | None:
    """Ask again in other dialects; return the first in which nothing is refused, or None."""
    for dialect in _candidates(trial):
        again = _again(trial, dialect)
        if again.fault is None or again.fault.kind == "no_answer":
            return dialect
    return None


def refuses_tools(trial: Trial) -> bool:
    """Ask the consent question again without a tool; tell whether that is accepted."""
    return bool(_again(trial, trial.provider.dialect, offers_tool=False).replies)


def _again(trial: Trial, dialect: Dialect, *, offers_tool: bool = True) -> Trial:
    provider = replace(trial.provider, dialect=dialect)
    return Trial(provider, trial.model_id, trial.room, trial.seconds, offers_tool).run()


def _candidates(trial: Trial) -> Iterator[Dialect]:
    """Yield dialects other than the one in use, the likeliest first."""
    if (known := dialect_of_host(trial.provider)) is not None:
        yield known  # no other: it could leave out the privacy terms that this provider takes
        return
    for name in dict.fromkeys((*_pointed_to(str(trial.fault)), *_COMMON)):
        if (dialect := dialects.named(name)) is not trial.provider.dialect:
            yield dialect


def _pointed_to(refusal: str) -> Iterator[str]:
    parameter = _PARAMETER.search(refusal)
    for field in _NAME.findall(parameter[1] if parameter is not None else ""):
        yield from _POINTED_TO_BY.get(field, ())
