"""A provider's list of its models: names, room, prices."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from refine.rules.model_names import is_same_model, without_variant
from refine.rules.prices import Price, listed_price, price_of
from refine.rules.received_json import answered_json, at
from refine.rules.tokens import Room

# Fields of the entries in providers' lists, as paths.
_CONTEXT = (
    ("context_length",),  # OpenRouter, Together, Moonshot
    ("top_provider", "context_length"),  # OpenRouter: of the provider that serves it
    ("max_context_length",),  # Mistral
    ("context_window",),  # Groq
    ("max_model_len",),  # vLLM
    ("meta", "n_ctx"),  # llama.cpp
    ("model_info", "max_input_tokens"),  # LiteLLM
    ("max_input_tokens",),  # Anthropic
)
_OUTPUT = (
    ("top_provider", "max_completion_tokens"),
    ("max_completion_tokens",),
    ("model_info", "max_output_tokens"),
)
_ID = (("id",), ("model_name",))
_OTHER_NAMES = (("canonical_slug",), ("aliases",), ("litellm_params", "model"))
_ALIAS_TARGETS = (("alias_target", "slug"), ("alias_target",))
_DIGITS = re.compile("[0-9]{1,12}")


@dataclass(frozen=True)
class ListedModel:
    """A model by its provider's list; ``parameters`` is empty if that lists none."""

    id: str
    names: frozenset[str]
    canonical_name: str | None = None
    context_tokens: int | None = None
    max_output_tokens: int | None = None
    parameters: frozenset[str] = frozenset()
    price: Price | None = None

    @property
    def takes_tools(self) -> bool:
        return not self.parameters or "tools" in self.parameters


@dataclass(frozen=True)
class Catalogue:
    models: tuple[ListedModel, ...]

    def find(self, model_id: str) -> ListedModel | None:
        for name in (model_id, without_variant(model_id)):
            by_id = (model for model in self.models if model.id == name)
            by_name = (model for model in self.models if name in model.names)
            if (found := next(by_id, None) or next(by_name, None)) is not None:
                return found
        return None

    def is_same_model(self, pinned: str, answered: str) -> bool:
        """Tell whether both name one model; different canonical names in the list deny it."""
        listed, other = self.find(pinned), self.find(answered)
        canonical = {each.canonical_name for each in (listed, other) if each is not None} - {None}
        names = listed.names if listed is not None else frozenset()
        return len(canonical) < 2 and any(
            is_same_model(name, answered) for name in {pinned, *names}
        )

    def room(self, model_id: str, default_tokens: int) -> Room:
        """Return how the model's context is divided: ``default_tokens`` if no context is listed."""
        listed = self.find(model_id)
        if listed is None:
            return Room.of(default_tokens, None)
        return Room.of(listed.context_tokens or default_tokens, listed.max_output_tokens)

    def prices(self, model_id: str, price_file: Mapping[str, Price]) -> dict[str, Price]:
        listed = self.find(model_id)
        found = {
            "the provider's list": listed.price if listed is not None else None,
            "REFINE_PRICES": price_of(model_id, price_file),
        }
        return {source: price for source, price in found.items() if price is not None}

    def __bool__(self) -> bool:
        return bool(self.models)


@lru_cache(maxsize=2)
def parse_catalogue(body: bytes) -> Catalogue:
    """Return the list, without entries that have no name; a broken list is empty."""
    try:
        listed = answered_json(body)
    except ValueError:
        return Catalogue(())
    if isinstance(listed, Mapping):
        listed = listed.get("data") or listed.get("models")
    entries = listed if isinstance(listed, list) else []
    models = (_model(entry) for entry in entries if isinstance(entry, Mapping))
    return Catalogue(tuple(model for model in models if model is not None))


def _model(entry: Mapping[str, Any]) -> ListedModel | None:
    model_id = next(_strings(entry, _ID), None)
    if model_id is None:
        return None
    # an alias that always leads to the latest model names no model permanently
    targets = () if model_id.startswith("~") else _ALIAS_TARGETS
    # Gemini lists models/x and answers as x
    names = {model_id, model_id.removeprefix("models/")}
    return ListedModel(
        id=model_id,
        canonical_name=next(_strings(entry, _OTHER_NAMES[:1]), None),
        names=frozenset({*names, *_strings(entry, (*_OTHER_NAMES, *targets))}),
        context_tokens=min(_counts(entry, _CONTEXT), default=None),
        max_output_tokens=min(_counts(entry, _OUTPUT), default=None),
        parameters=frozenset(_strings(entry, (("supported_parameters",),))),
        price=listed_price(entry.get("pricing")) or _litellm_price(entry),
    )


def _litellm_price(entry: Mapping[str, Any]) -> Price | None:
    """See github.com/BerriAI/litellm/issues/5549, github.com/maximhq/bifrost/issues/1329."""
    named = {
        "prompt": at(entry, ("model_info", "input_cost_per_token")),
        "completion": at(entry, ("model_info", "output_cost_per_token")),
        "input_cache_read": at(entry, ("model_info", "cache_read_input_token_cost")),
    }
    price = listed_price(named)
    return None if price is None or price.is_zero else price


def _counts(entry: Any, paths: tuple[tuple[str, ...], ...]) -> list[int]:
    counts = []
    for value in (at(entry, path) for path in paths):
        is_text = isinstance(value, str) and _DIGITS.fullmatch(value) is not None
        if is_text or (isinstance(value, float) and value.is_integer()):
            value = int(value)
        if type(value) is int and value > 0:
            counts.append(value)
    return counts


def _strings(entry: Any, paths: tuple[tuple[str, ...], ...]) -> Iterator[str]:
    for path in paths:
        value = at(entry, path)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str) and each:
                yield each
