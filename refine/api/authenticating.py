"""Who asks: the bearer of a token, and nobody else. A cookie means nothing here."""

from flask import request

from refine.api.problems import Problem
from refine.errors import NotFound
from refine.extensions import db
from refine.models import ApiToken
from refine.models.clients.api_token import TokenKind, is_well_formed

_KINDS: dict[TokenKind, str] = {"agent": "an agent token", "platform": "a platform token"}


def authenticated(kind: TokenKind) -> ApiToken:
    """Return the token that the request bears, if it is a valid one of this kind.

    Raises Problem: 401 where there is none that is valid, 403 where it may not do this. Commits
    that it was used.
    """
    token = _token()
    if token.kind != kind:
        raise Problem(403, f"This needs {_KINDS[kind]}.")
    if token.agent is not None and not token.agent.active:
        raise Problem(403, "The agent is not active; its platform can change that.")
    if token.agent is not None and token.agent.is_erased:
        raise Problem(403, "What the agent kept was erased, for good.")
    if token.note_use():
        db.session.commit()
    return token


def _token() -> ApiToken:
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret:
        raise Problem(
            401,
            "Send a token as `Authorization: Bearer …`.",
            headers={"WWW-Authenticate": 'Bearer realm="refine"'},
        )
    if not is_well_formed(secret):  # no question to the database for what never was a token
        raise _invalid("This is no token of Refine: it is cut off, or mistyped.")
    try:
        token = ApiToken.of_secret(secret)
    except NotFound:
        raise _invalid("This token was never minted here.") from None
    if not token.is_valid:
        raise _invalid("This token was revoked, or has expired.")
    return token


def _invalid(detail: str) -> Problem:
    challenge = 'Bearer realm="refine", error="invalid_token"'
    return Problem(401, detail, headers={"WWW-Authenticate": challenge})
