"""Operations: the same classes validate requests and generate the OpenAPI document."""

import functools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from flask import Blueprint, Response, g, request
from pydantic import BaseModel, ValidationError
from werkzeug.exceptions import RequestEntityTooLarge

from refine.api.authenticating import authenticate, require_form
from refine.api.problems import Problem
from refine.api.schemas import Body, Query, field_errors
from refine.errors import InvalidValue
from refine.extensions import canonical_json, db
from refine.faults import RETRY_AFTER_SECONDS, as_sentence
from refine.models import ApiToken, IdempotencyKey
from refine.models.agent import only_key_of
from refine.models.clients.api_token import TokenKind
from refine.models.clients.idempotency_key import StoredResponse
from refine.rules.received_json import strict_json

Method = Literal["GET", "POST", "PATCH", "DELETE"]
View = TypeVar("View", bound=Callable[..., Any])
Sent = TypeVar("Sent", Body, Query)

JSON = "application/json"
# The longest body that an operation accepts, unless it says otherwise.
MAX_BODY_BYTES = 256 * 1024

KEY_HEADER = "Idempotency-Key"
MAX_KEY_CHARACTERS = 200
KEY_PATTERN = f"^[!-~]([ -~]{{0,{MAX_KEY_CHARACTERS - 2}}}[!-~])?$"
KEY_RULE = f"1 to {MAX_KEY_CHARACTERS} printable ASCII characters"

api = Blueprint("api", __name__, url_prefix="/api/v1")


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One method of one path.

    ``returns`` is the class of the answer, None for an answer without a body. ``status`` is what it
    usually has, ``other`` says when it has another one. ``media_type`` is a second
    one to choose by Accept, with an ETag. The field ``shown_once`` of an answer is null when it is
    repeated for the same idempotency key.
    """

    method: Method
    rule: str
    view: Callable[..., Any]
    bearer: TokenKind | None
    query: type[Query] | None
    body: type[BaseModel] | None
    returns: type[BaseModel] | None
    status: int = 200
    other: tuple[int, str] | None = None
    media_type: str | None = None
    max_bytes: int = MAX_BODY_BYTES
    shown_once: str | None = None

    @property
    def path(self) -> str:
        return re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", self.rule)

    @property
    def name(self) -> str:
        return self.view.__name__


OPERATIONS: list[Operation] = []


def operation(
    method: Method, rule: str, *, bearer: TokenKind | None, **declared: Any
) -> Callable[[View], View]:
    """Declare a view as an operation for one kind of token, or (None) for everybody.

    The view gets the agent (of an agent token) or the token (of a platform), the values of the
    path, and the ``query`` and ``body`` that it has parameters for: their annotations are the
    classes that check them, and that of the view the class of its answer, unless ``declared``
    otherwise. A ``body`` that is no ``Body`` is passed on unread, as text. The view returns the
    answer, or the answer and its status; what it changed is committed after that.
    """

    def declare(view: View) -> View:
        found = {name: view.__annotations__.get(name) for name in ("query", "body")}
        found["returns"] = view.__annotations__["return"]
        called = Operation(
            method=method, rule=rule, view=view, bearer=bearer, **{**found, **declared}
        )
        OPERATIONS.append(called)
        api.add_url_rule(
            rule,
            called.name,
            functools.partial(_dispatch, called),
            methods=[method],
            provide_automatic_options=False,
        )
        return view

    return declare


def json_response(payload: object, status: int = 200) -> Response:
    plain = payload.model_dump(mode="json") if isinstance(payload, BaseModel) else payload
    return Response(canonical_json(plain), status, mimetype=JSON)


def _dispatch(called: Operation, **values: Any) -> Response:
    """Read the body first, with no transaction open; then check token, limits and request."""
    if called.bearer is None:
        return json_response(called.view(**values))
    require_form()
    raw = _read(called.max_bytes) if called.body is not None else b""
    token = authenticate(called.bearer)
    query = _query(called.query or Query)
    if called.query is not None:
        values["query"] = query
    if called.body is not None:
        values["body"] = _body(called.body, raw, called.max_bytes)
    answer = functools.partial(_answer, called, token.agent or token, values)
    with only_key_of(token.agent_id):
        if called.method == "GET":
            return answer()
        key = request.headers.get(KEY_HEADER)
        answered = answer() if key is None else _answer_once(token, key, answer, called.shown_once)
        db.session.commit()
        return answered


def _answer(called: Operation, owner: Any, values: dict[str, Any]) -> Response:
    answer, status = called.view(owner, **values), called.status
    if isinstance(answer, tuple):
        answer, status = answer
    if isinstance(answer, Response):
        return answer
    if status != 204:
        return json_response(answer, status)
    response = Response(status=status)
    del response.headers["Content-Type"]
    return response


def _query(model: type[Query]) -> Query:
    query = _validated(model, request.args.to_dict())
    g.fields = set(request.args)
    for name, texts in request.args.lists():
        if len(texts) > 1:
            raise InvalidValue(f"{name} must be given only once")
    return query


def _body(model: type[BaseModel], raw: bytes, max_bytes: int) -> BaseModel | str:
    if not issubclass(model, Body):
        # the code that parses the text refuses invalid UTF-8
        return raw.decode(errors="surrogateescape")
    if raw and request.mimetype != JSON:
        raise Problem(415, "Send the body as application/json.")
    sent = _parsed(raw, max_bytes) if raw.strip() else {}
    body = _validated(model, sent)
    g.fields |= body.model_fields_set
    return body


def _read(max_bytes: int) -> bytes:
    """Refuse a long body; one byte above the limit reveals that werkzeug cut a chunked one."""
    request.max_content_length = max_bytes + 1
    raw = request.get_data()
    if len(raw) > max_bytes:
        raise RequestEntityTooLarge
    return raw


def _parsed(raw: bytes, max_bytes: int) -> object:
    try:
        sent = strict_json(raw.decode(), "the body", max_bytes=max_bytes)
    except UnicodeDecodeError:
        raise Problem(400, "The body is not valid UTF-8.") from None
    except InvalidValue as error:
        raise Problem(400, as_sentence(str(error))) from None
    if not isinstance(sent, dict):
        raise InvalidValue("the body must be an object")
    return sent


def _validated(model: type[Sent], sent: object) -> Sent:
    try:
        return model.model_validate(sent)
    except ValidationError as error:
        errors = field_errors(error)
        raise Problem.invalid(errors, unlisted=error.error_count() - len(errors)) from None


# -- a request that is repeated with its Idempotency-Key is carried out once ----------------------

# A key belongs to a token. Key, changes and answer are one transaction, so a request that is
# refused, or fails, frees its key. An operation that commits on its way stores its answer
# afterwards: if its process dies in between, the outcome is unknown and the key stays in use.


def _answer_once(
    token: ApiToken, key: str, answer: Callable[[], Response], shown_once: str | None
) -> Response:
    if not re.fullmatch(KEY_PATTERN, key):
        raise Problem(400, f"{KEY_HEADER} must be {KEY_RULE}.")
    query, body = request.query_string.decode(), request.get_data().hex()
    sent = canonical_json([request.method, request.path, query, body])
    taken, is_new = IdempotencyKey.reserve(token, key, sent)
    if not is_new:
        return _repeated(taken)
    answered = answer()
    if taken not in db.session:  # erasing a memory deletes the answers of its agent
        taken, _is_new = IdempotencyKey.reserve(token, key, sent)
    text = answered.get_data(as_text=True)
    if shown_once is not None:
        text = canonical_json(json.loads(text) | {shown_once: None})
    taken.store(StoredResponse(answered.status_code, text, answered.mimetype))
    return answered


def _repeated(taken: IdempotencyKey) -> Response:
    kept = taken.stored_response()
    if kept is None:
        raise Problem(
            409,
            f"A request with this {KEY_HEADER} is still running, or was interrupted. Check whether "
            "it was carried out before you repeat it with another key.",
            headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
        )
    repeated = Response(kept.body, kept.status, mimetype=kept.media_type)
    repeated.headers["Idempotency-Replayed"] = "true"
    return repeated
