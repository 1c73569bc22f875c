"""Bearer tokens of requests; cookies are ignored."""

from flask import request

from refine.api.problems import Problem
from refine.errors import NotFound, RowAltered
from refine.extensions import db
from refine.models import ApiToken, schema_version
from refine.models.clients.api_token import TokenKind, is_well_formed

_KINDS: dict[TokenKind, str] = {"agent": "an agent token", "platform": "a platform token"}


def authenticate(kind: TokenKind) -> ApiToken:
    """Return the request's token and commit its use; raise Problem 401 or 403 otherwise."""
    token = _valid_token()
    if token.kind != kind:
        raise Problem(403, f"This operation needs {_KINDS[kind]}.")
    if token.agent is not None and not token.agent.active:
        raise Problem(403, "The agent is not active; its platform can activate it.")
    if token.agent is not None and token.agent.is_erased:
        raise Problem(403, "The agent's content was permanently erased.")
    if token.note_use():
        db.session.commit()
    return token


def _valid_token() -> ApiToken:
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret:
        raise Problem(
            401,
            "Send a token as `Authorization: Bearer …`.",
            headers={"WWW-Authenticate": 'Bearer realm="refine"'},
        )
    if not is_well_formed(secret):  # saves the database a query
        raise _invalid("This is not a valid Refine token: it is truncated or mistyped.")
    schema_version.require_compatible()
    try:
        token = ApiToken.of_secret(secret)
    except (NotFound, RowAltered):
        raise _invalid("This token is unknown.") from None
    agent = token.agent
    mine = token.agent_id, token.account_id
    if agent is None:
        is_mine = token.agent_id is None
    else:
        is_mine = agent.is_genuine and (agent.id, agent.account_id) == mine
    if not is_mine:
        raise _invalid("The agent was changed outside the application.")
    if not token.is_valid:
        raise _invalid("This token was revoked or has expired.")
    return token


def _invalid(detail: str) -> Problem:
    challenge = 'Bearer realm="refine", error="invalid_token"'
    return Problem(401, detail, headers={"WWW-Authenticate": challenge})
