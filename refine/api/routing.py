"""Operations: each says who may ask, what it takes and what it answers; nothing is asked past that.

The same words check a request and make the document, so that neither can say what the other does
not. An operation that names no token is public; there is no other way in.
"""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flask import Blueprint, Response, g, request
from werkzeug.exceptions import RequestEntityTooLarge

from refine.api import limiting, once, problems
from refine.api.authenticating import authenticated
from refine.api.checking import Schema, faults, from_url
from refine.api.problems import Problem, sentence
from refine.api.schemas import SCHEMAS
from refine.errors import InvalidValue
from refine.extensions import canonical_json
from refine.models import ApiToken
from refine.models.clients.api_token import TokenKind
from refine.rules.strict_json import strict_json
from refine.rules.tool_arguments import MAX_ARGUMENT_BYTES

Method = Literal["GET", "POST", "PATCH", "DELETE"]
View = Callable[..., Response]

JSON = "application/json"

api = Blueprint("api", __name__, url_prefix="/api/v1")
problems.handle(api)


@dataclass(frozen=True)
class Answer:
    """One way in which an operation answers: the name of a schema, the headers that say more."""

    says: str
    schema: str | None = None
    headers: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # other media types of the same


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One method of one path.

    ``body`` names the schema of what is sent; it is None for nothing, and ``is_raw`` where the
    text is read by somebody else. An answer that ``is_secret`` is given once, whatever the key.
    """

    method: Method
    rule: str
    view: View
    bearer: TokenKind | None
    answers: Mapping[int, Answer]
    query: Mapping[str, Schema] = field(default_factory=dict)
    body: str | None = None
    is_raw: bool = False
    most_bytes: int = MAX_ARGUMENT_BYTES
    is_secret: bool = False

    @property
    def path(self) -> str:
        """The path as the document has it: ``/agents/{agent_id}``."""
        return re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", self.rule)


OPERATIONS: list[Operation] = []


def operation(
    method: Method, rule: str, *, bearer: TokenKind | None, **about: Any
) -> Callable[[View], View]:
    """Make a view an operation, for the bearers of one kind of token, or (None) for everybody.

    The view is given the agent (of an agent token) or the token (of a platform), the values in the
    path, and, where the operation has them, ``query`` and ``body``.
    """

    def made(view: View) -> View:
        each = Operation(method=method, rule=rule, view=view, bearer=bearer, **about)
        OPERATIONS.append(each)

        @functools.wraps(view)
        def answered(**values: Any) -> Response:
            return _answered(each, values)

        # pages want a sign-in; here a token is wanted, or nothing
        answered.is_public = True  # type: ignore[attr-defined]
        api.add_url_rule(
            rule,
            f"{method.lower()}_{view.__name__}",
            answered,
            methods=[method],
            provide_automatic_options=False,
        )
        return view

    return made


def given(payload: Any, status: int = 200, **headers: str) -> Response:
    """Return a JSON answer."""
    answer = Response(canonical_json(payload), status, mimetype=JSON)
    answer.headers.extend({name.replace("_", "-"): value for name, value in headers.items()})
    return answer


def nothing() -> Response:
    """Return the answer of what is done and has nothing to say: no content, and so of no type."""
    answer = Response(status=204)
    del answer.headers["Content-Type"]
    return answer


def _answered(asked: Operation, values: dict[str, Any]) -> Response:
    """Who asks, how often, then what: a stranger learns nothing of what a request should be."""
    if asked.bearer is None:
        return asked.view(**values)
    token = authenticated(asked.bearer)
    limiting.count(token)
    if asked.query or request.args:
        values["query"] = _query(asked)
    if asked.body is not None:
        _take_in(asked.most_bytes)
        values["body"] = _raw() if asked.is_raw else _body(asked, SCHEMAS[asked.body])
    view = functools.partial(asked.view, _asker(token), **values)
    if asked.method != "POST":
        return view()
    return once.answered(token, view, is_secret=asked.is_secret)


def _asker(token: ApiToken) -> Any:
    return token.agent if token.agent is not None else token


def _query(asked: Operation) -> dict[str, Any]:
    if set(request.args) - set(asked.query):
        names = ", ".join(asked.query)
        known = f"the parameters are: {names}" if names else "none is taken here"
        raise Problem.invalid([("", f"unknown parameter; {known}")])
    read: dict[str, Any] = {}
    for name, texts in request.args.lists():
        if len(texts) > 1:
            raise Problem.invalid([(name, f"{name} is given more than once")])
        read[name] = from_url(asked.query[name], texts[0])
    schema = {"type": "object", "properties": dict(asked.query)}
    _refuse_unfit(schema, read)
    defaults = {n: each["default"] for n, each in asked.query.items() if "default" in each}
    return {**defaults, **read}


def _take_in(most_bytes: int) -> None:
    """Read the body, of which werkzeug keeps a copy; refuse one that is too long.

    One that says no length (it comes in chunks) is cut at the limit, and nothing said: with a byte
    to spare that shows.
    """
    request.max_content_length = most_bytes + 1
    if len(request.get_data()) > most_bytes:
        raise RequestEntityTooLarge


def _body(asked: Operation, schema: Schema) -> dict[str, Any]:
    raw = request.get_data()
    if raw and request.mimetype != JSON:
        raise Problem(415, "Send the body as application/json.")
    try:
        body = (
            strict_json(raw.decode(), "the body", max_bytes=asked.most_bytes) if raw.strip() else {}
        )
    except UnicodeDecodeError:
        raise Problem(400, "The body is not valid UTF-8.") from None
    except InvalidValue as error:
        raise Problem(400, sentence(str(error))) from None
    _refuse_unfit(schema, body)
    g.fields = frozenset(body)
    return body


def _raw() -> str:
    """The text as it came; bytes that are no UTF-8 are refused further on, as any such text."""
    return request.get_data().decode(errors="surrogateescape")


def _refuse_unfit(schema: Schema, value: object) -> None:
    if found := list(faults(schema, value)):
        raise Problem.invalid(found)
