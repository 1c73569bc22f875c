"""The OpenAPI document: made from the operations themselves."""

import inspect
import re
from functools import cache
from http import HTTPStatus
from typing import Any

from flask import Response

from refine import __version__
from refine.api.once import KEY_PATTERN
from refine.api.problems import MEDIA_TYPE
from refine.api.routing import JSON, OPERATIONS, Answer, Operation, given, operation
from refine.api.schemas import SCHEMAS, reference

_SCHEMES = {
    "agent": "The agent itself: `Authorization: Bearer refine_agent_…`.",
    "platform": "The platform that hosts agents: `Authorization: Bearer refine_platform_…`.",
}

# What the way of every request may answer, whatever the operation.
_ALWAYS = {
    401: "There is no token, or it is not valid.",
    403: "It is a token of the other kind, or its agent is not active.",
    422: "A field is missing, unknown or wrong: `errors` names it.",
    429: "The token asks too often.",
    500: "A fault in Refine.",
    503: "The database cannot be reached.",
}
_WITH_JSON = {400: "The body is not JSON.", 415: "The body is not application/json."}
_WITH_KEY = {
    400: "The body is not JSON, or the Idempotency-Key is none.",
    409: "The Idempotency-Key is in use, or the state of things forbids it.",
}

_HEADERS = {
    "ETag": {"description": "What If-None-Match is compared with.", "schema": {"type": "string"}},
    "Retry-After": {
        "description": "After so many seconds it is worth another try.",
        "schema": {"type": "integer"},
    },
    "WWW-Authenticate": {"description": "The scheme: Bearer.", "schema": {"type": "string"}},
    "Idempotency-Replayed": {
        "description": "`true`: this was answered before, to the same key.",
        "schema": {"type": "string"},
    },
}
_HEADERS_OF = {401: ("WWW-Authenticate",), 429: ("Retry-After",), 503: ("Retry-After",)}

_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "1 to 200 printable ASCII characters, no blank at either end. Within 24 hours "
    "the same request under the same key is done once, and answered again as it was.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": KEY_PATTERN},
}
_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "An ETag that was given before.",
    "schema": {"type": "string"},
}
_IN_PATH = {"int": {"type": "integer", "minimum": 1}, "uuid": {"type": "string", "format": "uuid"}}


@operation("GET", "/openapi.json", bearer=None, answers={200: Answer("The document.")})
def openapi() -> Response:
    """This document."""
    return given(document())


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document of all operations."""
    paths: dict[str, Any] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Refine",
            "version": __version__,
            "description": "Memories of AI agents, for the agents themselves and for the platform "
            "that hosts them. With a platform token alone no content is read.",
        },
        "servers": [{"url": "/api/v1"}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "headers": _HEADERS,
            "securitySchemes": {
                name: {"type": "http", "scheme": "bearer", "description": said}
                for name, said in _SCHEMES.items()
            },
        },
    }


def _operation(each: Operation) -> dict[str, Any]:
    summary, _, more = (inspect.getdoc(each.view) or "").partition("\n\n")
    said: dict[str, Any] = {
        "operationId": f"{each.method.lower()}_{each.view.__name__}",
        "summary": summary.rstrip("."),
        "security": [{each.bearer: []}] if each.bearer is not None else [],
        "responses": {str(status): answer for status, answer in sorted(_responses(each).items())},
    }
    if each.bearer is not None:
        said["tags"] = [each.bearer]
    if more:
        said["description"] = more.replace("\n", " ")
    if parameters := _parameters(each):
        said["parameters"] = parameters
    if each.body is not None:
        said["requestBody"] = {
            "required": bool(SCHEMAS[each.body].get("required")),
            "content": {JSON: {"schema": reference(each.body)}},
        }
    return said


def _parameters(each: Operation) -> list[dict[str, Any]]:
    in_path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": _IN_PATH.get(kind, {"type": "string"}),
        }
        for kind, name in re.findall(r"<(?:(\w+):)?(\w+)>", each.rule)
    ]
    in_query = [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in each.query.items()
    ]
    in_header = [_KEY] if each.method == "POST" else []
    in_header += [_MATCH] if 304 in each.answers else []
    return in_path + in_query + in_header


def _responses(each: Operation) -> dict[int, Any]:
    if each.bearer is None:
        return {
            200: {
                "description": each.answers[200].says,
                "content": {JSON: {"schema": {"type": "object"}}},
            }
        }
    said = dict(_ALWAYS)
    if each.body is not None:
        said[413] = f"The body is longer than {each.most_bytes:,} bytes."
    said |= _WITH_JSON if each.body is not None and not each.is_raw else {}
    said |= _WITH_KEY if each.method == "POST" else {}
    said |= {status: answer.says for status, answer in each.answers.items()}
    if "<" in each.rule:
        said.setdefault(404, "There is no such thing.")
    return {
        status: _response(status, description, each.answers.get(status, Answer(description)), each)
        for status, description in said.items()
    }


def _response(status: int, description: str, answer: Answer, each: Operation) -> dict[str, Any]:
    headers = [*answer.headers, *_HEADERS_OF.get(status, ())]
    if each.method == "POST" and status < 300:
        headers.append("Idempotency-Replayed")
    content = {}
    if status >= 400:
        content = {MEDIA_TYPE: {"schema": reference("Problem")}}
    elif answer.schema is not None:
        content = {JSON: {"schema": reference(answer.schema)}}
        content |= {kind: {"schema": {"type": "string"}} for kind in answer.also}
    said: dict[str, Any] = {"description": description or HTTPStatus(status).phrase}
    if headers:
        said["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in headers}
    if content:
        said["content"] = content
    return said
