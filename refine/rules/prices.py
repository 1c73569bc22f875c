"""What the tokens of models cost, in US dollars."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from refine.errors import InvalidValue
from refine.rules.model_names import without_variant
from refine.rules.strict_json import strict_json

# The entry of a price file for models that it does not name.
ANY_MODEL = "*"

_MAX_FILE_BYTES = 4 * 1024 * 1024
# a hundred dollars for a million tokens is the order of the dearest; the bound catches wrong units
_MAX_USD_PER_TOKEN = Decimal("0.01")
_NAMES = ("prompt", "completion", "input_cache_read")


@dataclass(frozen=True)
class Price:
    """US dollars for one token of the prompt, of its cached part, and of the completion."""

    prompt: Decimal
    completion: Decimal
    cached: Decimal

    def cost_usd(
        self, *, prompt_tokens: int, cached_tokens: int, completion_tokens: int
    ) -> Decimal:
        """Return what a call costs; the cached tokens are a part of the prompt's."""
        cached = min(cached_tokens, prompt_tokens)
        return (
            (prompt_tokens - cached) * self.prompt
            + cached * self.cached
            + completion_tokens * self.completion
        )


def listed_price(pricing: object) -> Price | None:
    """Return the price in OpenRouter's form, or None if it is not one.

    ``{"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003"}``: US
    dollars for a token, as text or numbers. Without a price for cached tokens, they cost what
    others do. Of conditional prices (``overrides``: long prompts, times of day) the highest counts,
    so that a cost cap is never reckoned too low.
    """
    if not isinstance(pricing, Mapping):
        return None
    given = [pricing, *_mappings(pricing.get("overrides"))]
    prompt, completion, cached = (_highest(given, name) for name in _NAMES)
    if prompt is None or completion is None:
        return None
    return Price(prompt, completion, prompt if cached is None else cached)


def parse_price_file(text: str) -> dict[str, Price]:
    """Return the prices by model id; InvalidValue if the file is not as ``listed_price`` says.

    The id ``*`` stands for every model that the file does not name.
    """
    entries = strict_json(text, "the price file", max_bytes=_MAX_FILE_BYTES)
    if not isinstance(entries, dict) or not entries:
        raise InvalidValue(f"the price file must be a JSON object: {_EXAMPLE}")
    prices = {model_id: listed_price(pricing) for model_id, pricing in entries.items()}
    wrong = [model_id for model_id, price in prices.items() if price is None]
    if wrong:
        raise InvalidValue(f"the price of {wrong[0][:100]!r} is not one; write {_EXAMPLE}")
    return {model_id: price for model_id, price in prices.items() if price is not None}


_EXAMPLE = '{"author/model": {"prompt": "0.000003", "completion": "0.000015"}}, in USD per token'


def price_of(model_id: str, prices: Mapping[str, Price]) -> Price | None:
    """Return the model's price in a price file, or that of every other model, or None.

    A variant without a price of its own (``author/model:floor``) has the model's. The sums over
    runs look prices up in the same way, in SQL (``models/runs/spending.py``).
    """
    names = (model_id, without_variant(model_id), ANY_MODEL)
    return next((prices[name] for name in names if name in prices), None)


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _highest(given: list[Mapping[str, Any]], name: str) -> Decimal | None:
    return max((usd for each in given if (usd := _usd(each.get(name))) is not None), default=None)


def _usd(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        usd = Decimal(str(value))
    except InvalidOperation:
        return None
    return usd if usd.is_finite() and 0 <= usd <= _MAX_USD_PER_TOKEN else None
