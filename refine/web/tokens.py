"""API tokens: listed and revoked; platform tokens are also created, and shown once."""

from flask import Blueprint, flash, redirect, render_template
from flask.typing import ResponseReturnValue
from sqlalchemy import select
from sqlalchemy.orm import joinedload

from refine.extensions import db
from refine.models import ApiToken
from refine.web import scope
from refine.web.paging import page_of
from refine.web.words import here_to

pages = Blueprint("tokens", __name__)


@pages.get("/tokens")
def listing() -> str:
    """List the tokens; agent tokens are created elsewhere."""
    return _page()


@pages.post("/tokens")
@scope.admins_only
def mint() -> ResponseReturnValue:
    _, secret = ApiToken.mint(account=scope.account_to_change(), user=scope.user())
    db.session.commit()
    return _page(secret)


@pages.post("/tokens/<int:token_id>/revoke")
@scope.admins_only
def revoke(token_id: int) -> ResponseReturnValue:
    token = scope.found_or_404(ApiToken, token_id)
    token.revoke(scope.user())
    db.session.commit()
    flash(f"Token {token.hint}… revoked.")
    return redirect(here_to("tokens.listing"), 303)


def _page(secret: str | None = None) -> str:
    query = (
        select(ApiToken)
        .options(joinedload(ApiToken.agent), joinedload(ApiToken.created_by))
        .where(ApiToken.account_id.in_(scope.account_ids()))
        .order_by(ApiToken.id.desc())
    )
    page = page_of(query)
    return render_template(
        "tokens/page.html",
        page=page,
        tokens=[row[0] for row in page.rows],
        secret=secret,
        account=scope.account_to_change(),
    )
