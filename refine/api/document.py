"""The OpenAPI document, generated from the operations."""

import inspect
import re
from functools import cache
from typing import Any

from flask import request
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema

from refine import __version__
from refine.api.problems import KINDS, MEDIA_TYPE, ProblemDetails
from refine.api.routing import (
    JSON,
    KEY_HEADER,
    KEY_PATTERN,
    KEY_RULE,
    MAX_KEY_CHARACTERS,
    OPERATIONS,
    Operation,
    api,
    operation,
)
from refine.api.schemas import Body, Query
from refine.models.clients.idempotency_key import ANSWERS_KEPT_FOR
from refine.models.columns import MAX_ID
from refine.rules.quantities import in_hours

_SCHEMES = {
    "agent": "The agent itself: `Authorization: Bearer refine_agent_…`.",
    "platform": "The platform that hosts agents: `Authorization: Bearer refine_platform_…`.",
}

_TEXT = {"type": "string"}


def _parameter(name: str, place: str, schema: Any, **described: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": False, **described, "schema": schema}


_KEY = _parameter(
    KEY_HEADER,
    "header",
    {"type": "string", "minLength": 1, "maxLength": MAX_KEY_CHARACTERS, "pattern": KEY_PATTERN},
    description=f"{KEY_RULE}, without spaces at the ends. A request that is repeated with the same "
    f"key within {in_hours(ANSWERS_KEPT_FOR)} is carried out once and gets the same response.",
)
_MATCH = _parameter(
    "If-None-Match", "header", _TEXT, description="The ETag of an earlier response."
)
_IN_PATH: dict[str, dict[str, object]] = {
    "int": {"type": "integer", "minimum": 1, "maximum": MAX_ID},
    "uuid": {"type": "string", "format": "uuid"},
}


class _Schemas(GenerateJsonSchema):
    """JSON Schema without titles, which would only repeat the names of the fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@operation("GET", "/openapi.json", bearer=None, returns=None)
def get_openapi() -> dict[str, Any]:
    """Return this document."""
    return document() | {"servers": [{"url": f"{request.script_root}{api.url_prefix}"}]}


@cache
def document() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Refine",
            "version": __version__,
            "description": "Memories of AI agents, for the agents themselves and for the platform "
            "that hosts them. A platform token cannot read content.",
        },
        "servers": [{"url": api.url_prefix}],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {
                name: {"type": "http", "scheme": "bearer", "description": description}
                for name, description in _SCHEMES.items()
            },
        },
    }


def _schemas() -> dict[str, Any]:
    sent = {each.body for each in OPERATIONS if each.body}
    answered = {each.returns for each in OPERATIONS if each.returns}
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "validation") for model in sent]
    modes += [(model, "serialization") for model in answered | {ProblemDetails}]
    _, schemas = models_json_schema(
        sorted(modes, key=lambda each: each[0].__name__),
        ref_template="#/components/schemas/{model}",
        schema_generator=_Schemas,
    )
    return dict(schemas["$defs"])


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _operation(each: Operation) -> dict[str, Any]:
    summary, _, description = (inspect.getdoc(each.view) or "").partition("\n\n")
    described: dict[str, Any] = {
        "operationId": each.name,
        "summary": summary.rstrip("."),
        "tags": [each.bearer or "document"],
        "security": [{each.bearer: []}] if each.bearer is not None else [],
        "responses": {str(status): made for status, made in sorted(_responses(each).items())},
    }
    if description:
        described["description"] = description.replace("\n", " ")
    if parameters := _parameters(each):
        described["parameters"] = parameters
    if each.body is not None:
        described["requestBody"] = {
            "required": any(field.is_required() for field in each.body.model_fields.values()),
            "content": {JSON: {"schema": _reference(each.body)}},
        }
    return described


def _parameters(each: Operation) -> list[dict[str, Any]]:
    in_path = [
        {**_parameter(name, "path", _IN_PATH.get(kind, _TEXT)), "required": True}
        for kind, name in re.findall(r"<(?:(\w+):)?(\w+)>", each.rule)
    ]
    query = (each.query or Query).model_json_schema(schema_generator=_Schemas)
    in_query = [
        _parameter(name, "query", schema) for name, schema in query.get("properties", {}).items()
    ]
    in_header = [] if each.method == "GET" else [_KEY]
    in_header += [_MATCH] if each.media_type else []
    return in_path + in_query + in_header


def _responses(each: Operation) -> dict[int, Any]:
    if each.bearer is None:
        content = {JSON: {"schema": {"type": "object"}}}
        return {200: {"description": "The document.", "content": content}}
    content = {MEDIA_TYPE: {"schema": _reference(ProblemDetails)}}
    answers: dict[int, Any] = {
        status: {"description": f"{KINDS[status][1]}.", "content": content}
        for status in _problems(each)
    }
    answers[each.status] = _answer(each, (inspect.getdoc(each.returns) or "Done.").split("\n")[0])
    if each.other is not None:
        answers[each.other[0]] = _answer(each, each.other[1])
    if each.media_type is not None:
        answers[304] = {"description": "Not modified."}
    return answers


def _problems(each: Operation) -> list[int]:
    statuses = [401, 403, 422, 429, 500, 503]
    if each.method != "GET":
        statuses += [400, 409]  # its Idempotency-Key is malformed, or in use
    if each.body is not None:
        statuses += [400, 413, 415] if issubclass(each.body, Body) else [413]
    if "<" in each.rule:
        statuses.append(404)
    return statuses


def _answer(each: Operation, description: str) -> dict[str, Any]:
    described: dict[str, Any] = {"description": description}
    if each.returns is not None:
        described["content"] = {JSON: {"schema": _reference(each.returns)}}
        if each.media_type is not None:
            described["content"][each.media_type] = {"schema": _TEXT}
    return described
