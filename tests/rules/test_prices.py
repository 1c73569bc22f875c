"""What tokens cost: prices in OpenRouter's form, and files of them."""

import json
from decimal import Decimal

import pytest

from refine.errors import InvalidValue
from refine.rules.prices import Price, Usage, listed_price, parse_price_file, price_of

PRICE = Price(prompt=Decimal("0.000003"), completion=Decimal("0.000015"), cached=Decimal("3E-7"))
LISTED = {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003"}


def test_cached_tokens_are_a_part_of_the_prompt_at_a_price_of_their_own():
    for usage, cost_usd in (
        (Usage(1_000, 600, 100), "0.00288"),
        (Usage(10, 99, 0), "0.000003"),  # never more than the prompt
        (Usage(1_000, 600, 100, cost_usd=Decimal("0.5")), "0.5"),  # the answer's own comes first
    ):
        assert usage.priced(PRICE).cost_usd == Decimal(cost_usd), usage


def test_a_price_is_text_or_a_number_and_cached_tokens_cost_the_same_unless_named():
    assert listed_price(LISTED) == PRICE
    assert listed_price({"prompt": 0.000003, "completion": 0.000015}) == Price(
        PRICE.prompt, PRICE.completion, PRICE.prompt
    )
    assert listed_price({"prompt": 0, "completion": "0"}) == Price(*[Decimal(0)] * 3)


def test_the_highest_of_conditional_prices_counts():
    overrides = [{"min_prompt_tokens": 200_000, "prompt": "0.000006"}, {"completion": "0.00001"}]

    assert listed_price({**LISTED, "overrides": overrides}) == Price(
        Decimal("0.000006"), PRICE.completion, PRICE.cached
    )


def test_prices_and_costs_have_few_digits_and_no_call_costs_more_than_100_dollars():
    tiny = listed_price({"prompt": "1e-99999", "completion": "0." + "0" * 5 + "1" * 5_000})
    assert tiny == Price(Decimal(0), Decimal("0.000001111111111"), Decimal(0))

    dear = Price(*[Decimal("0.01")] * 3)
    assert Usage(9_000, 0, 1_000).priced(dear).cost_usd == 100
    assert Usage(9_001, 0, 1_000).priced(dear).cost_usd is None


def test_an_invalid_price_counts_as_unknown():
    for pricing in (
        *(None, [], "0.1", {}, {"prompt": "0.1"}, {"prompt": "-1", "completion": "0"}),
        *({"prompt": "NaN", "completion": "0"}, {"prompt": True, "completion": "0"}),
        {"prompt": "3", "completion": "15"},  # for a million tokens
        *(
            {"prompt": None, "completion": None},
            {"prompt": "1e9999999", "completion": "1e99999999999999999999"},
        ),
    ):
        assert listed_price(pricing) is None, pricing


def test_a_file_names_models_and_may_name_all_others():
    free = {"prompt": 0, "completion": 0}
    prices = parse_price_file(json.dumps({"a/b": LISTED, "*": free}))

    assert price_of("a/b", prices) == PRICE
    assert price_of("c/d", prices) == listed_price(free)
    assert price_of("c/d", {"a/b": PRICE}) is None


def test_a_variant_has_the_models_price_unless_it_has_its_own():
    own, others = Price(*[Decimal(1)] * 3), Price(*[Decimal(0)] * 3)
    prices = {"a/b": PRICE, "a/b:free": own, "*": others}

    assert price_of("a/b:floor", prices) == price_of("a/b:nitro", prices) == PRICE
    assert price_of("a/b:free", prices) == own
    assert price_of("a/b:8b", prices) == others


def test_a_wrong_file_is_refused():
    for text, problem in (
        ("", "the price file must be valid JSON"),
        ("[1]", "must be a JSON object"),
        ("{}", "must be a JSON object"),
        ('{"a/b": {"prompt": "3", "completion": "15"}}', "invalid price for 'a/b'; expected"),
        ('{"a/b": 1, "a/b": 2}', "the price file"),
    ):
        with pytest.raises(InvalidValue, match=problem):
            parse_price_file(text)
