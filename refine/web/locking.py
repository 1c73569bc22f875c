"""Locking somebody, or an account, out at once; and letting them in again."""

from typing import Any

from flask import Blueprint, abort, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from refine.extensions import db
from refine.models import Account, User, locking
from refine.web import scope
from refine.web.forms import attempt, shown_again
from refine.web.links import url_in_account
from refine.web.people import protect_site_admins

pages = Blueprint("locking", __name__)


@pages.get("/users/<int:user_id>/lock")
@pages.get("/accounts/<int:account_id>/lock")
@scope.admins_only
@scope.password_confirmed
def form(error: Exception | None = None, **ids: Any) -> str:
    subject = _subject(**ids)
    return render_template("locking/page.html", subject=subject, back=_back(**ids), error=error)


@pages.post("/users/<int:user_id>/lock")
@pages.post("/accounts/<int:account_id>/lock")
@scope.admins_only
@scope.password_confirmed
@shown_again(form)
def lock(**ids: Any) -> ResponseReturnValue:
    reason, ends_tokens = request.form.get("reason", ""), "tokens" in request.form
    ended = locking.lock(_subject(**ids), reason, scope.user(), ends_tokens=ends_tokens)
    db.session.commit()
    flash(f"Locked. Ended: {locking.in_words(ended)}.")
    return redirect(_back(**ids), 303)


@pages.post("/users/<int:user_id>/unlock")
@pages.post("/accounts/<int:account_id>/unlock")
@scope.admins_only
@scope.password_confirmed
def unlock(**ids: Any) -> ResponseReturnValue:
    subject = _subject(**ids)
    attempt(lambda: locking.unlock(subject, scope.user()), "Unlocked.")
    return redirect(_back(**ids), 303)


def _subject(user_id: int | None = None, account_id: int | None = None) -> User | Account:
    if user_id is not None:
        user = scope.found_or_404(User, user_id)
        protect_site_admins(user)
        return user
    if not scope.user().site_admin:
        abort(403)
    return scope.found_or_404(Account, account_id or 0)


def _back(user_id: int | None = None, account_id: int | None = None) -> str:
    return url_for("accounts.listing") if account_id else url_in_account("people.listing")
