"""Accounts, for site admins."""

from flask import Blueprint, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import func, select

from refine.errors import InvalidValue, Refused
from refine.extensions import db
from refine.faults import status_of
from refine.models import Account, Agent
from refine.web import scope
from refine.web.lists import Chosen, page_of, searched

pages = Blueprint("accounts", __name__)


@pages.get("/accounts")
@scope.site_admins_only
def listing() -> str:
    return _page()


@pages.post("/accounts")
@scope.site_admins_only
@scope.admins_only
def add() -> ResponseReturnValue:
    name = request.form.get("name", "")
    try:
        account = Account.create(
            name, request.form.get("slug", "").strip() or None, user=scope.user()
        )
    except (InvalidValue, Refused) as error:
        db.session.rollback()
        return _page(error=str(error)), status_of(error)
    db.session.commit()
    flash(f"{account.name} was added. You can invite its first admin here.")
    return redirect(url_for("people.listing", account=account.slug), 303)


def _page(error: str | None = None) -> str:
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
