"""Where people are signed in, and ending that; and locks, which end all at once."""

from typing import Any

from flask import Blueprint, abort, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from refine.extensions import db
from refine.models import Account, SignIn, User, locking
from refine.rules.quantities import plural
from refine.web import scope
from refine.web.forms import attempt, shown_again
from refine.web.links import url_in_account
from refine.web.people import user_to_change

pages = Blueprint("sign_ins", __name__)


@pages.get("/profile/sign-ins")
def listing() -> str:
    sign_ins = SignIn.open_of(scope.user())
    return render_template("sign_ins/page.html", sign_ins=sign_ins, current=scope.sign_in())


@pages.post("/profile/sign-ins/<int:sign_in_id>/end")
def end(sign_in_id: int) -> ResponseReturnValue:
    for each in SignIn.open_of(scope.user()):
        if each.id == sign_in_id:
            each.end()
    db.session.commit()
    flash("That sign-in has ended.")
    return redirect(url_for("sign_ins.listing"), 303)


@pages.post("/profile/sign-ins/end")
def end_all() -> ResponseReturnValue:
    """End all but this one, or with ``this`` also this one."""
    user, current = scope.user(), scope.sign_in()
    user.lock()  # nobody signs in meanwhile
    _end_all(user, but=None if request.form.get("this") == "1" else current)
    return redirect(url_for("sign_ins.listing"), 303)


@pages.post("/users/<int:user_id>/sign-ins/end")
@scope.admins_only
def end_all_of(user_id: int) -> ResponseReturnValue:
    user = user_to_change(user_id)
    user.lock_for(scope.user())
    _end_all(user)
    return redirect(url_in_account("people.listing"), 303)


def _end_all(user: User, but: SignIn | None = None) -> None:
    ended = SignIn.end_all_of(user, but=but)
    user.record("user_signed_out_everywhere", by=scope.user(), data={"sign_ins": ended})
    db.session.commit()
    flash(f"{plural(ended, 'sign-in')} of {user.email} ended.")


locks = Blueprint("locking", __name__)


@locks.get("/users/<int:user_id>/lock")
@locks.get("/accounts/<int:account_id>/lock")
@scope.admins_only
@scope.password_confirmed
def lock_form(error: Exception | None = None, **ids: Any) -> str:
    subject = _subject(**ids)
    ends_tokens = "tokens" in request.form or not (error or "user_id" in ids)
    return render_template(
        "locking/page.html",
        subject=subject,
        ends_tokens=ends_tokens,
        back=_back(**ids),
        error=error,
    )


@locks.post("/users/<int:user_id>/lock")
@locks.post("/accounts/<int:account_id>/lock")
@scope.admins_only
@scope.password_confirmed
@shown_again(lock_form)
def lock(**ids: Any) -> ResponseReturnValue:
    reason, ends_tokens = request.form.get("reason", ""), "tokens" in request.form
    ended = locking.lock(_subject(**ids), reason, scope.user(), ends_tokens=ends_tokens)
    db.session.commit()
    flash(f"Locked. Ended: {locking.in_words(ended)}.")
    return redirect(_back(**ids), 303)


@locks.post("/users/<int:user_id>/unlock")
@locks.post("/accounts/<int:account_id>/unlock")
@scope.admins_only
@scope.password_confirmed
def unlock(**ids: Any) -> ResponseReturnValue:
    subject = _subject(**ids)
    attempt(lambda: locking.unlock(subject, scope.user()), "Unlocked.")
    return redirect(_back(**ids), 303)


def _subject(user_id: int | None = None, account_id: int | None = None) -> User | Account:
    if user_id is not None:
        return user_to_change(user_id)
    if not scope.user().site_admin:
        abort(403)
    return scope.found_or_404(Account, account_id or 0)


def _back(user_id: int | None = None, account_id: int | None = None) -> str:
    return url_for("accounts.listing") if account_id else url_in_account("people.listing")
