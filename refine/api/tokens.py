"""Agents' tokens, minted and revoked by their platform."""

from datetime import datetime
from typing import Any

from flask import Response

from refine import clock
from refine.api.agents import agent_or_404
from refine.api.problems import Problem
from refine.api.routing import Answer, given, nothing, operation
from refine.extensions import db
from refine.models import ApiToken

_LARGEST_ID = 2**63 - 1


@operation(
    "POST",
    "/agents/<int:agent_id>/tokens",
    bearer="platform",
    body="NewToken",
    is_secret=True,
    answers={
        201: Answer("The token: it is shown this once.", "Token"),
        404: Answer("The account has no such agent."),
        409: Answer("This Idempotency-Key has minted a token already."),
    },
)
def mint(token: ApiToken, agent_id: int, body: dict[str, Any]) -> Response:
    """Mint a token for an agent: it speaks as the agent, which is told so in its journal."""
    agent = agent_or_404(token, agent_id)
    expires_at = body.get("expires_at")
    ends = datetime.fromisoformat(expires_at) if expires_at is not None else None
    if ends is not None and ends <= clock.now():
        raise Problem.invalid([("expires_at", "expires_at must lie in the future")])
    minted, secret = token.mint_for(agent, expires_at=ends)
    db.session.commit()
    return given(
        {
            "id": minted.id,
            "agent_id": agent.id,
            "token": secret,
            "hint": minted.hint,
            "created_at": clock.iso(minted.created_at),
            "expires_at": clock.iso(minted.expires_at),
        },
        201,
    )


@operation(
    "DELETE",
    "/tokens/<int:token_id>",
    bearer="platform",
    answers={
        204: Answer("It is worth nothing any more."),
        404: Answer("The account has no such token."),
    },
)
def revoke_token(token: ApiToken, token_id: int) -> Response:
    """Revoke a token of the account, at once and for good."""
    found = db.session.get(ApiToken, token_id) if token_id <= _LARGEST_ID else None
    if found is None or found.account_id != token.account_id:
        raise Problem(404, "The account has no such token.")
    found.revoke(by=token)
    db.session.commit()
    return nothing()
