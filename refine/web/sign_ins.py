"""Where somebody is signed in, and ending that: one's own, and those of colleagues."""

from flask import Blueprint, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from refine.extensions import db
from refine.models import SignIn, User
from refine.rules.quantities import plural
from refine.web import scope
from refine.web.links import url_in_account
from refine.web.people import protect_site_admins

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
    user = scope.found_or_404(User, user_id)
    protect_site_admins(user)
    user.lock_for(scope.user())
    _end_all(user)
    return redirect(url_in_account("people.listing"), 303)


def _end_all(user: User, but: SignIn | None = None) -> None:
    ended = SignIn.end_all_of(user, but=but)
    user.record("user_signed_out_everywhere", by=scope.user(), data={"sign_ins": ended})
    db.session.commit()
    flash(f"{plural(ended, 'sign-in')} of {user.email} ended.")
