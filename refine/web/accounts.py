"""Accounts, for site admins."""

from flask import Blueprint, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import func, select

from refine.extensions import db
from refine.models import Account, Agent
from refine.web import scope
from refine.web.forms import shown_again
from refine.web.lists import Chosen, page_of, searched

pages = Blueprint("accounts", __name__)


@pages.get("/accounts")
@scope.site_admins_only
def listing() -> str:
    return _page()


@pages.post("/accounts")
@scope.site_admins_only
@scope.admins_only
@shown_again(lambda error: _page(error))
def add() -> ResponseReturnValue:
    slug = request.form.get("slug", "").strip() or None
    account = Account.create(request.form.get("name", ""), slug, user=scope.user())
    db.session.commit()
    flash(f"{account.name} was added. You can invite its first admin here.")
    return redirect(url_for("people.listing", account=account.slug), 303)


def _page(error: Exception | None = None) -> str:
    agents = select(func.count(Agent.id)).where(Agent.account_id == Account.id).scalar_subquery()
    chosen = Chosen([searched(Account.name, Account.slug, label="Name or slug")])
    query = select(Account, agents).where(*chosen.conditions()).order_by(Account.slug)
    page = page_of(query)
    return render_template(
        "accounts/page.html",
        page=page,
        accounts=[row[:2] for row in page.rows],
        chosen=chosen,
        error=error,
        form=request.form,
    )
