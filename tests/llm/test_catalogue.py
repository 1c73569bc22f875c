"""A provider's list of its models, in the shapes of several providers."""

import json
from decimal import Decimal
from typing import Any

from refine.llm.catalogue import Catalogue, ListedModel, parse_catalogue
from refine.rules.prices import Price


def catalogue(*entries: Any) -> Catalogue:
    return parse_catalogue(json.dumps({"data": entries}).encode())


def listed(**entry: Any) -> ListedModel:
    (model,) = catalogue({"id": "test/model", **entry}).models
    return model


def test_the_context_is_found_wherever_a_provider_keeps_it():
    entries: list[dict[str, Any]] = [
        {"context_length": 9_000, "top_provider": {"context_length": 8_000}},
        {"context_length": 9_000, "max_model_len": "8000"},
        *({"max_context_length": 8_000}, {"context_window": 8_000}, {"max_model_len": 8_000}),
        *({"meta": {"n_ctx": 8_000}}, {"model_info": {"max_input_tokens": 8_000}}),
        *({"max_input_tokens": 8_000}, {"context_length": "8000"}, {"context_length": 8_000.0}),
    ]
    for entry in entries:
        assert listed(**entry).context_tokens == 8_000, entry


def test_the_models_own_output_limit_is_read():
    assert listed(top_provider={"max_completion_tokens": 4_096}).max_output_tokens == 4_096
    assert listed(model_info={"max_output_tokens": 4_096}).max_output_tokens == 4_096
    assert listed().max_output_tokens is None


def test_prices_are_read_from_openrouters_list_and_from_litellms():
    price = Price(Decimal("0.000003"), Decimal("0.000015"), Decimal("0.0000003"))
    pricing = {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003"}
    info = {
        "input_cost_per_token": 3e-06,
        "output_cost_per_token": 1.5e-05,
        "cache_read_input_token_cost": 3e-07,
    }

    assert listed(pricing=pricing).price == price
    assert listed(model_info=info).price == price
    assert listed(pricing={"prompt": "free"}).price is None
    assert listed(model_info={"input_cost_per_token": None}).price is None


def test_a_model_takes_tools_unless_its_parameters_say_otherwise():
    assert listed().takes_tools
    assert listed(supported_parameters=["tools", "max_tokens"]).takes_tools
    assert not listed(supported_parameters=["max_tokens"]).takes_tools


def test_a_model_is_found_by_each_of_its_names_and_without_its_variant():
    models = catalogue(
        {"id": "a/b-2026", "canonical_slug": "a/b"},
        {"id": "a/b"},
        {"id": "a/c", "aliases": ["a/c-latest"]},
        {"model_name": "mine", "litellm_params": {"model": "openai/gpt-5"}},
        {"id": "models/d"},
    )

    def id_of(name: str) -> str | None:
        model = models.find(name)
        return model.id if model is not None else None

    assert [id_of(each) for each in ("a/b", "a/b:nitro", "a/b-2026", "a/c-latest")] == [
        *("a/b", "a/b", "a/b-2026", "a/c")
    ]
    assert (id_of("openai/gpt-5"), id_of("d"), id_of("a/d")) == ("mine", "models/d", None)


def test_names_that_the_list_gives_one_model_are_the_same():
    for entry, pinned, answered in (
        ({"id": "g/pro", "aliases": ["g/pro-preview-03-25"]}, "g/pro-preview-03-25", "g/pro"),
        ({"id": "x/3-beta", "canonical_slug": "x/3"}, "x/3-beta", "x/3"),
        ({"id": "x/mini-beta", "alias_target": {"slug": "x/mini"}}, "x/mini-beta", "x/mini"),
        ({"id": "grok-reasoning", "aliases": ["grok"]}, "grok", "grok-reasoning"),
        ({"id": "a/b", "canonical_slug": "a/c"}, "a/b", "a/c-20260101"),
    ):
        assert catalogue({"id": "other/model"}, entry).is_same_model(pinned, answered)
        assert not catalogue({"id": "other/model"}).is_same_model(pinned, answered)
        assert not catalogue(entry).is_same_model(pinned, "other/model")


def test_two_models_with_canonical_names_of_their_own_are_two():
    first = {"id": "a/r1", "canonical_slug": "a/r1"}
    second = {"id": "a/r1-0528", "canonical_slug": "a/r1-0528"}
    free = {"id": "a/r1:free", "canonical_slug": "a/r1"}

    assert not catalogue(first, second).is_same_model("a/r1", "a/r1-0528")
    assert not catalogue(first, second, free).is_same_model("a/r1:free", "a/r1-0528")
    assert catalogue(first, second, free).is_same_model("a/r1:free", "a/r1")


def test_a_dated_name_is_the_same_model_where_the_list_does_not_tell_them_apart():
    first, dated = {"id": "a/r1", "canonical_slug": "a/r1-0528"}, {"id": "a/r1-0528"}

    for models in ([], [first], [dated], [first, dated], [{"id": "a/r1"}, dated]):
        assert catalogue(*models).is_same_model("a/r1", "a/r1-0528"), models
        assert not catalogue(*models).is_same_model("a/r1", "a/r2"), models


def test_an_invalid_list_is_empty_and_invalid_entries_are_left_out():
    for body in (
        *(b"", b"<html>", b"[]", b"null", b"{}", b"[" * 100_000, b'{"data": null}', b'{"data": 7}'),
        *(b'{"data": ["test/model"]}', b'{"data": [null]}', b'{"data": [{}]}'),
        *(b'{"data": [{"id": 7}]}', b'{"data": [{"id": ""}]}', b'{"models": "test/model"}'),
    ):
        assert not parse_catalogue(body), body[:30]
    assert [each.id for each in catalogue(None, {"id": "a/b"}, 7).models] == ["a/b"]


def test_a_listed_price_comes_before_that_of_the_price_file():
    pricing = {"prompt": "0.000003", "completion": "0.000015"}
    known = catalogue({"id": "a/b", "pricing": pricing}, {"id": "c/d"})
    own = Price(Decimal(1), Decimal(1), Decimal(1))

    assert list(known.prices("a/b", {"*": own})) == ["the provider's list", "REFINE_PRICES"]
    assert known.prices("c/d", {"c/d": own}) == {"REFINE_PRICES": own}
    assert known.prices("c/d", {}) == {}
