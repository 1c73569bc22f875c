"""The definitions of all tools, in what OpenAI, Anthropic and Gemini all take.

Keywords: https://platform.openai.com/docs/guides/structured-outputs (strict mode) and
https://ai.google.dev/gemini-api/docs/function-calling (a subset of OpenAPI 3.0).
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from refine.refinement.prompting import READING
from refine.tools import (
    PromoteTool,
    SaveToJournalTool,
    own_memories,
    refinement,
    save_memory,
    self_authoring,
)

TOOLS = {
    **{each["function"]["name"]: each for each in own_memories.DEFINITIONS},
    "promote": PromoteTool.definition,
    "refinement": refinement.DEFINITION,
    "save_memory": save_memory.DEFINITION,
    "second_reading": READING,
    "save_to_journal": SaveToJournalTool.definition,
    "self_authoring": self_authoring.DEFINITION,
}
KEYWORDS = {"type", "description", "enum", "items", "properties", "required"}


@pytest.fixture(params=TOOLS)
def function(request: pytest.FixtureRequest) -> dict[str, Any]:
    definition = TOOLS[request.param]
    assert definition.keys() == {"type", "function"}
    assert definition["type"] == "function"
    return dict(definition["function"])


def schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema and all that stand in it."""
    yield schema
    for inner in (*schema.get("properties", {}).values(), *filter(None, [schema.get("items")])):
        yield from schemas(inner)


def test_every_provider_takes_the_definition(function: dict[str, Any]) -> None:
    parameters = function["parameters"]

    assert function.keys() == {"name", "description", "parameters"}
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", function["name"])
    assert parameters["additionalProperties"] is False
    for schema in schemas(parameters):
        assert schema.keys() - {"additionalProperties"} <= KEYWORDS
        assert schema["type"] in ("object", "array", "string", "integer", "boolean")
        assert all(isinstance(value, str) for value in schema.get("enum", []))
        assert ("items" in schema) == (schema["type"] == "array")


def test_all_parameters_are_required_where_calls_have_one_form(function: dict[str, Any]) -> None:
    parameters = function["parameters"]

    # a call of refinement names what its action takes: docs/decisions/0019
    of_every_call = ["action"] if function["name"] == "refinement" else [*parameters["properties"]]
    assert parameters["required"] == of_every_call
