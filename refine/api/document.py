"""The OpenAPI document, generated from the operations."""

import inspect
import re
from functools import cache
from typing import Any

from flask import Response, request
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema
from pydantic_core import core_schema

from refine import __version__
from refine.api.idempotency import HEADER, KEY_PATTERN, KEY_RULE, MAX_KEY_CHARACTERS, REPLAYED
from refine.api.problems import MEDIA_TYPE, ProblemDetails
from refine.api.routing import (
    JSON,
    OPERATIONS,
    Operation,
    ResponseSpec,
    api,
    json_response,
    operation,
)
from refine.api.schemas import Body, Query
from refine.rules.ids import MAX_ID
from refine.rules.keeping import ANSWERS_KEPT_FOR
from refine.rules.quantities import in_hours

_SCHEMES = {
    "agent": "The agent itself: `Authorization: Bearer refine_agent_…`.",
    "platform": "The platform that hosts agents: `Authorization: Bearer refine_platform_…`.",
}

# Answers that do not depend on the operation.
_ALWAYS = {
    401: "The token is missing or invalid.",
    403: "The wrong kind of token, or an agent that is not active or was erased.",
    422: "A field is missing, unknown or invalid; see `errors`.",
    429: "Too many requests with this token.",
    500: "Internal error.",
    503: "The database cannot be reached.",
}
_WITH_JSON = {400: "The body is not JSON.", 415: "The body is not application/json."}
_WITH_KEY = {
    400: f"The body is not JSON, or the {HEADER} is malformed.",
    409: f"The {HEADER} is in use, or the request conflicts with the current state.",
}

_TEXT = {"type": "string"}
_SECONDS = {"type": "integer"}
_HEADERS = {
    "ETag": {"description": "Send it as If-None-Match.", "schema": _TEXT},
    "Retry-After": {"description": "Seconds to wait before trying again.", "schema": _SECONDS},
    "WWW-Authenticate": {"description": "The scheme: Bearer.", "schema": _TEXT},
    REPLAYED: {
        "description": "`true` if it is the stored response to an earlier request with this key.",
        "schema": _TEXT,
    },
}
_HEADERS_OF = {401: ("WWW-Authenticate",), 429: ("Retry-After",), 503: ("Retry-After",)}


def _parameter(name: str, place: str, schema: Any, **described: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": False, **described, "schema": schema}


_KEY = _parameter(
    HEADER,
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


class _ParameterSchemas(_Schemas):
    """A query string has no null: a parameter that may be None is optional."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        made = super().default_schema(schema)
        return {key: value for key, value in made.items() if (key, value) != ("default", None)}


@operation("GET", "/openapi.json", bearer=None, responses={200: ResponseSpec("The document.")})
def openapi() -> Response:
    """Return this document."""
    here = {"servers": [{"url": f"{request.script_root}{api.url_prefix}"}]}
    return json_response(document() | here)


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
            "headers": _HEADERS,
            "securitySchemes": {
                name: {"type": "http", "scheme": "bearer", "description": description}
                for name, description in _SCHEMES.items()
            },
        },
    }


def _schemas() -> dict[str, Any]:
    sent = {each.body for each in OPERATIONS if each.body is not None}
    answered = {answer.schema for each in OPERATIONS for answer in each.responses.values()}
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "validation") for model in sent]
    modes += [(model, "serialization") for model in answered | {ProblemDetails} if model]
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
    responses = {str(status): made for status, made in sorted(_responses(each).items())}
    described: dict[str, Any] = {
        "operationId": each.name,
        "summary": summary.rstrip("."),
        "security": [{each.bearer: []}] if each.bearer is not None else [],
        "responses": responses,
    }
    if each.bearer is not None:
        described["tags"] = [each.bearer]
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
    query = (each.query or Query).model_json_schema(schema_generator=_ParameterSchemas)
    in_query = [
        _parameter(name, "query", schema) for name, schema in query.get("properties", {}).items()
    ]
    in_header = [_KEY] if each.method == "POST" else []
    in_header += [_MATCH] if 304 in each.responses else []
    return in_path + in_query + in_header


def _responses(each: Operation) -> dict[int, Any]:
    if each.bearer is None:
        content = {JSON: {"schema": {"type": "object"}}}
        return {200: {"description": each.responses[200].description, "content": content}}
    descriptions = dict(_ALWAYS)
    if each.body is not None:
        descriptions[413] = f"The body is longer than {each.max_bytes:,} bytes."
        descriptions |= _WITH_JSON if issubclass(each.body, Body) else {}
    descriptions |= _WITH_KEY if each.method == "POST" else {}
    if "<" in each.rule:
        descriptions[404] = "Not found."
    answers = {status: ResponseSpec(description) for status, description in descriptions.items()}
    answers |= each.responses
    return {status: _response(each, status, answer) for status, answer in answers.items()}


def _response(each: Operation, status: int, answer: ResponseSpec) -> dict[str, Any]:
    headers = [*answer.headers, *_HEADERS_OF.get(status, ())]
    if each.method == "POST" and status < 300:
        headers.append(REPLAYED)
    content = {}
    if status >= 400:
        content = {MEDIA_TYPE: {"schema": _reference(ProblemDetails)}}
    elif answer.schema is not None:
        content = {JSON: {"schema": _reference(answer.schema)}}
        content |= {kind: {"schema": {"type": "string"}} for kind in answer.other_media_types}
    described: dict[str, Any] = {"description": answer.description}
    if headers:
        described["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in headers}
    if content:
        described["content"] = content
    return described
