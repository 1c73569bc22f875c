"""Providers' differences from OpenAI's chat completions, as ``dialects.toml`` lists them."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ConfigDict, TypeAdapter

from refine.errors import SettingsError
from refine.llm.messages import Privacy


@dataclass(frozen=True)
class Dialect:
    """What one provider takes and gives.

    hosts           its servers, or domains of them: these have it by default
    output_limit    the name of the limit of an answer; a model's entry in the provider's list may
                    name another (``limits_in_list``)
    has_null_content  whether null, not "", stands beside tool calls in place of content
    kept            fields of an answer that the next request repeats, besides text and calls: the
                    provider that sent one accepts it in the history
    always_kept     those that must be there, if only empty, beside tool calls
    marks_ledger    beginnings of model ids whose caches must be told where the stable part ends
    marks_request   those whose caches follow the conversation, by one mark for the whole request
    fields          fields of its own in the body of each request; {…} is a field of ``Privacy``
    headers         headers of its own
    cost_header     the header that tells what an answer cost
    retry_header    the header that stands in where Retry-After is missing
    list_path       where it lists its models
    not_found       what HTTP 404 means, and what to do about it
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    hosts: tuple[str, ...] = ()
    output_limit: str = "max_tokens"
    limits_in_list: bool = False
    has_null_content: bool = False
    kept: tuple[str, ...] = ()
    always_kept: tuple[str, ...] = ()
    marks_ledger: tuple[str, ...] = ()
    marks_request: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    cost_header: str | None = None
    retry_header: str = "Retry-After"
    list_path: str = "/models"
    not_found: str = (
        "the model is not known or not offered at this address; check its name and "
        "OPENROUTER_BASE_URL"
    )

    def needs_ledger_mark(self, model_id: str) -> bool:
        return model_id.casefold().startswith(self.marks_ledger)

    def own_fields(self, model_id: str, privacy: Privacy) -> dict[str, Any]:
        is_marked = model_id.casefold().startswith(self.marks_request)
        mark = {"cache_control": {"type": "ephemeral"}} if is_marked else {}
        terms = {f"{{{name}}}": value for name, value in vars(privacy).items()}
        return {**_filled(self.fields, terms), **mark}


def _filled(value: Any, terms: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return {name: _filled(each, terms) for name, each in value.items()}
    return terms.get(value, value) if isinstance(value, str) else value


_FILE = Path(__file__).with_name("dialects.toml")
DIALECTS = TypeAdapter(tuple[Dialect, ...]).validate_python(
    tomllib.loads(_FILE.read_text(encoding="utf-8"))["dialect"]
)
NAMES = tuple(dialect.name for dialect in DIALECTS)


def named(name: str) -> Dialect:
    if name not in NAMES:
        raise SettingsError(f"REFINE_DIALECT must be one of {', '.join(NAMES)}")
    return DIALECTS[NAMES.index(name)]


OPENROUTER, PLAIN = named("openrouter"), named("plain")


def at(url: str) -> Dialect | None:
    """Return the dialect of the server at a URL, if it is a known one."""
    host = urlsplit(url).hostname or ""
    for dialect in DIALECTS:
        if any(host == known or host.endswith(f".{known}") for known in dialect.hosts):
            return dialect
    return None
