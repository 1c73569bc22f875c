"""The OpenAPI document is valid, complete, and decides like the API itself."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from refine.api.document import document
from refine.api.routing import OPERATIONS
from tests.api.test_every_operation import name_of


def test_everyone_may_read_it(world):
    for program in (world.nobody, world.own):
        answer = program.get("/openapi.json")

        assert answer.status_code == 200
        assert answer.json == json.loads(json.dumps(document()))


def test_it_is_valid_openapi_3_1():
    OpenAPIV31SpecValidator(document()).validate()  # type: ignore[arg-type]


@pytest.mark.parametrize("each", OPERATIONS, ids=name_of)
def test_describes_every_operation_with_its_token_and_its_problems(each):
    described = document()["paths"][each.path][each.method.lower()]

    assert described["summary"]
    assert described["security"] == ([{each.bearer: []}] if each.bearer else [])
    if each.bearer is None:
        return
    answers = described["responses"]
    assert answers.keys() >= {"401", "403", "422", "429", "500", "503"}
    for status, answer in answers.items():
        if int(status) >= 400:
            problem = {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}
            assert answer["content"] == {"application/problem+json": problem}
    parameters = described.get("parameters", [])
    headers = [parameter["name"] for parameter in parameters if parameter["in"] == "header"]
    assert ("Idempotency-Key" in headers) == (each.method != "GET")


def test_describes_nothing_else():
    paths, schemas = document()["paths"], document()["components"]["schemas"]

    assert {(path, method.upper()) for path, methods in paths.items() for method in methods} == {
        (each.path, each.method) for each in OPERATIONS
    }
    used = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document()))
    assert set(used) == set(schemas)


def test_the_parameters_of_a_list_may_be_left_out_but_not_null():
    parameters = document()["paths"]["/memories"]["get"]["parameters"]

    schemas = {each["name"]: each["schema"] for each in parameters}
    assert schemas["limit"] == {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}
    assert schemas["type"] == {"type": "string", "enum": ["core", "journal"]}
    assert schemas["cursor"].keys() == {"type", "minLength", "description"}


def schemas_in(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of the document, schemas among them."""
    if isinstance(value, dict):
        yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inner:
        yield from schemas_in(each)


def test_generators_make_functions_of_a_verb_and_a_noun_in_a_module_for_each_token():
    described = [each for methods in document()["paths"].values() for each in methods.values()]
    names = [each["operationId"] for each in described]

    assert len(names) == len(set(names))
    assert [name for name in names if not re.fullmatch(r"[a-z]+(_[a-z]+)+", name)] == []
    assert {tag for each in described for tag in each["tags"]} == {"agent", "platform", "document"}


def test_generators_make_classes_whose_names_no_field_has():
    schemas = document()["components"]["schemas"]

    plain = {name: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in schemas}
    assert [name for name in schemas if plain[name] in schemas[name].get("properties", {})] == []


def test_generators_make_one_enumeration_of_a_choice_of_words():
    choices = [each["anyOf"] for each in schemas_in(document()) if "anyOf" in each]

    words = [[each for each in choice if {"enum", "const"} & each.keys()] for choice in choices]
    assert [each for each in words if len(each) > 1] == []
