"""What the tokens of models cost, in US dollars."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Self

from refine.errors import InvalidValue
from refine.rules.model_names import without_variant
from refine.rules.quantities import finite
from refine.rules.received_json import strict_json

# The entry of a price file for models that it does not name.
ANY_MODEL = "*"

_MAX_FILE_BYTES = 4 * 1024 * 1024
# the dearest models cost about a hundred dollars for a million tokens; this catches wrong units
_MAX_USD_PER_TOKEN = Decimal("0.01")
# No call costs more; a higher figure is a mistake and is ignored.
_MAX_USD_PER_CALL = 100
# Decimal places that costs are kept with, and prices of a token.
_PLACES_OF_COST, _PLACES_OF_PRICE = 6, 15
# A number with more digits is not an amount of money, and would overflow.
_MAX_DIGITS = 15
_NAMES = ("prompt", "completion", "input_cache_read")


@dataclass(frozen=True)
class Price:
    """US dollars for one token of the prompt, of its cached part, and of the completion."""

    prompt: Decimal
    completion: Decimal
    cached: Decimal

    @property
    def is_zero(self) -> bool:
        return not any((self.prompt, self.completion, self.cached))


@dataclass(frozen=True)
class Usage:
    """What one call took, by the provider's count; tokens are unknown unless ``is_counted``."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: Decimal | None = None
    reasoning_tokens: int = 0
    is_counted: bool = False

    def priced(self, price: Price) -> Self:
        if self.cost_usd is not None:
            return self
        cached = min(self.cached_tokens, self.prompt_tokens)
        cost_usd = cost_of_call(
            (self.prompt_tokens - cached) * price.prompt
            + cached * price.cached
            + self.completion_tokens * price.completion
        )
        return replace(self, cost_usd=cost_usd)


def cost_of_call(value: object, unit: Decimal = Decimal(1)) -> Decimal | None:
    """Return the cost in US dollars, to six places; None if no call can cost that."""
    number = _decimal(value)
    if number is None or not 0 <= number * unit <= _MAX_USD_PER_CALL:
        return None
    return round(number * unit, _PLACES_OF_COST)


def listed_price(pricing: object) -> Price | None:
    """Return the price in OpenRouter's form, or None if it is not one.

    ``{"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003"}``: US
    dollars for a token, as text or numbers. Without a price for cached tokens, they cost what
    others do. The highest of conditional prices counts (``overrides``: long prompts, times of day),
    so that a cost is never underestimated.
    """
    if not isinstance(pricing, Mapping):
        return None
    overrides = pricing.get("overrides")
    given = [pricing, *(overrides if isinstance(overrides, list) else ())]
    given = [each for each in given if isinstance(each, Mapping)]
    prompt, completion, cached = (_highest(given, name) for name in _NAMES)
    if prompt is None or completion is None:
        return None
    return Price(prompt, completion, prompt if cached is None else cached)


def parse_price_file(text: str) -> dict[str, Price]:
    """Return the prices by model id (``*``: any other model); InvalidValue for a broken file."""
    entries = strict_json(text, "the price file", max_bytes=_MAX_FILE_BYTES)
    if not isinstance(entries, dict) or not entries:
        raise InvalidValue(f"the price file must be a JSON object: {_EXAMPLE}")
    prices = {}
    for model_id, pricing in entries.items():
        if (price := listed_price(pricing)) is None:
            raise InvalidValue(f"invalid price for {model_id[:100]!r}; expected {_EXAMPLE}")
        prices[model_id] = price
    return prices


_EXAMPLE = '{"author/model": {"prompt": "0.000003", "completion": "0.000015"}}, in USD per token'


def price_of(model_id: str, prices: Mapping[str, Price]) -> Price | None:
    """Return the model's price, that without its variant, or that of ``*``; in SQL: spending.py."""
    names = (model_id, without_variant(model_id), ANY_MODEL)
    return next((prices[name] for name in names if name in prices), None)


def _highest(given: list[Mapping[str, Any]], name: str) -> Decimal | None:
    named = (_decimal(each.get(name)) for each in given)
    prices = (usd for usd in named if usd is not None and 0 <= usd <= _MAX_USD_PER_TOKEN)
    return max((round(usd, _PLACES_OF_PRICE) for usd in prices), default=None)


def _decimal(value: object) -> Decimal | None:
    number = finite(value)
    return number if number is not None and number.adjusted() < _MAX_DIGITS else None
