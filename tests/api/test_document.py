"""The OpenAPI document: whole, valid, and about the operations that there are."""

import json
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openapi_spec_validator import OpenAPIV31SpecValidator

from refine.api.checking import KEYWORDS, REMARKS, faults
from refine.api.document import document
from refine.api.routing import OPERATIONS, Operation
from refine.api.schemas import SCHEMAS
from tests.api.conftest import Everybody
from tests.api.test_every_operation import name_of

SENT = sorted({each.body for each in OPERATIONS if each.body is not None})


def test_everybody_may_read_it(everybody: Everybody) -> None:
    for program in (everybody.nobody, everybody.own):
        answer = program.get("/openapi.json")

        assert answer.status_code == 200
        assert answer.json == json.loads(json.dumps(document()))


def test_it_is_valid_openapi_3_1() -> None:
    OpenAPIV31SpecValidator(document()).validate()  # type: ignore[arg-type]


@pytest.mark.parametrize("each", OPERATIONS, ids=name_of)
def test_every_operation_is_in_it_with_its_token_and_its_problems(each: Operation) -> None:
    said = document()["paths"][each.path][each.method.lower()]

    assert said["summary"]
    assert said["security"] == ([{each.bearer: []}] if each.bearer else [])
    if each.bearer is None:
        return
    answers = said["responses"]
    assert answers.keys() >= {"401", "403", "422", "429", "500", "503"}
    assert "Retry-After" in answers["429"]["headers"]
    assert "WWW-Authenticate" in answers["401"]["headers"]
    for status, answer in answers.items():
        if int(status) >= 400:
            problem = {"schema": {"$ref": "#/components/schemas/Problem"}}
            assert answer["content"] == {"application/problem+json": problem}
    keys = [each["name"] for each in said.get("parameters", []) if each["in"] == "header"]
    assert ("Idempotency-Key" in keys) == (each.method == "POST")


def test_each_size_is_the_operations_own() -> None:
    paths = document()["paths"]

    said = {path: paths[path]["post"]["responses"]["413"]["description"] for path in paths
            if "413" in paths[path].get("post", {}).get("responses", {})}  # fmt: skip

    assert said["/conversations"] == "The body is longer than 4,000,000 bytes."
    assert said["/memories"] == "The body is longer than 262,144 bytes."


def test_nothing_else_is_in_it() -> None:
    paths = document()["paths"]

    assert {(path, method.upper()) for path, said in paths.items() for method in said} == {
        (each.path, each.method) for each in OPERATIONS
    }
    said = json.dumps(document())
    assert set(re.findall(r'"#/components/schemas/(\w+)"', said)) == set(SCHEMAS)


def keywords_of(schema: Any) -> set[str]:
    found = set(schema)
    inner = [*schema.get("properties", {}).values()]
    inner += [schema["items"]] if "items" in schema else []
    for each in inner:
        found |= keywords_of(each)
    return found


@pytest.mark.parametrize("name", SENT)
def test_what_a_schema_says_of_what_is_sent_is_looked_at(name: str) -> None:
    assert keywords_of(SCHEMAS[name]) <= KEYWORDS | REMARKS


@pytest.mark.parametrize("each", OPERATIONS, ids=name_of)
def test_what_a_schema_says_of_a_parameter_is_looked_at(each: Operation) -> None:
    for schema in each.query.values():
        assert keywords_of(schema) <= KEYWORDS | REMARKS


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 12_000_000)
    # 1.0 is a whole number in JSON Schema; here what is written with a point is none
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda each: not each.is_integer())
    | st.sampled_from(["", "core", "journal", "audio", "x", "2026-03-01T12:00:00Z"])
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=3,
)


@pytest.mark.parametrize("name", SENT)
@given(st.data())
def test_it_is_decided_as_json_schema_decides(name: str, data: st.DataObject) -> None:
    schema = SCHEMAS[name]
    names = st.sampled_from([*schema.get("properties", {}), "surprise"])
    value = data.draw(st.dictionaries(names, VALUES, max_size=4) | VALUES)

    is_fit = not list(faults(schema, value))

    validator = jsonschema.Draft202012Validator(schema, format_checker=_FORMATS)
    assert is_fit == validator.is_valid(value)


_FORMATS = jsonschema.FormatChecker(formats=())


@_FORMATS.checks("date-time")
def _is_instant(text: object) -> bool:
    return not isinstance(text, str) or bool(re.fullmatch(r"\d{4}-.*(Z|[+-]\d\d:\d\d)", text))
