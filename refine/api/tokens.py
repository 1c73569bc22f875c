"""Agent tokens, created and revoked by the platform."""

from typing import Annotated

from flask import Response

from refine import clock
from refine.api.routing import ResponseSpec, json_response, no_content, operation
from refine.api.schemas import Body, Instant, Omittable, Resource, Time
from refine.api.scope import account_row_or_404
from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import Agent, ApiToken


class NewToken(Body):
    """A token to create."""

    expires_at: Annotated[Instant | None, Omittable]
    """When it expires; null for never."""


class Token(Resource):
    """A new token, shown only once."""

    id: int
    agent_id: int
    token: str
    """The token itself."""
    hint: str
    """Its first characters, as shown in lists."""
    created_at: Time
    expires_at: Time | None


@operation(
    "POST",
    "/agents/<int:agent_id>/tokens",
    bearer="platform",
    is_secret=True,
    responses={
        201: ResponseSpec("The token, shown only once.", Token),
        404: ResponseSpec("The account has no such agent."),
        409: ResponseSpec("A token was already created with this Idempotency-Key."),
    },
)
def mint(token: ApiToken, agent_id: int, body: NewToken) -> Response:
    """Create a token that acts as the agent, and note it in the agent's journal."""
    agent = account_row_or_404(token, Agent, agent_id, "agent")
    if body.expires_at is not None and body.expires_at <= clock.now():
        raise InvalidValue("expires_at must be in the future")
    minted, secret = token.mint_for(agent, expires_at=body.expires_at)
    db.session.commit()
    return json_response(Token.of(minted, token=secret), 201)


@operation(
    "DELETE",
    "/tokens/<int:token_id>",
    bearer="platform",
    responses={
        204: ResponseSpec("The token is revoked."),
        404: ResponseSpec("The account has no such token."),
    },
)
def revoke_token(token: ApiToken, token_id: int) -> Response:
    """Revoke a token of the account, immediately and permanently."""
    account_row_or_404(token, ApiToken, token_id, "token").revoke(by=token)
    db.session.commit()
    return no_content()
