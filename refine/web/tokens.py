"""API tokens, listed and revoked. They are created where the keys are: on the server."""

from flask import Blueprint, flash, redirect, render_template
from flask.typing import ResponseReturnValue
from sqlalchemy import func, select
from sqlalchemy.orm import joinedload

from refine.extensions import db
from refine.models import ApiToken
from refine.web import scope
from refine.web.links import url_in_account
from refine.web.lists import page_of

pages = Blueprint("tokens", __name__)


@pages.get("/tokens")
def listing() -> str:
    query = (
        select(ApiToken)
        .options(joinedload(ApiToken.agent), joinedload(ApiToken.minted_by))
        .where(scope.owns(ApiToken.account_id))
        .order_by(ApiToken.id.desc())
    )
    page = page_of(query)
    return render_template("tokens/page.html", page=page, tokens=[row[0] for row in page.rows])


@pages.get("/tokens/<int:token_id>/revoke")
@scope.admins_only
def revoke_form(token_id: int) -> str:
    """Say what revoking the token would end, and ask."""
    token = scope.found_or_404(ApiToken, token_id)
    minted = select(func.count()).where(
        ApiToken.minted_by_id == token.id, ApiToken.revoked_at.is_(None)
    )
    return render_template("tokens/revoke.html", token=token, minted=db.session.scalar(minted))


@pages.post("/tokens/<int:token_id>/revoke")
@scope.admins_only
def revoke(token_id: int) -> ResponseReturnValue:
    token = scope.found_or_404(ApiToken, token_id)
    token.revoke(scope.user())
    db.session.commit()
    also = ", and every token that it created" if token.kind == "platform" else ""
    flash(f"Token {token.hint}… revoked{also}.")
    return redirect(url_in_account("tokens.listing"), 303)
