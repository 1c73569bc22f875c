"""Where people are signed in, and ending that; and locks, which end all at once."""

from typing import Any

from flask import abort, render_template, request, url_for
from flask.typing import ResponseReturnValue

from refine.models import Account, SignIn, User, locking
from refine.rules.quantities import plural
from refine.web import scope
from refine.web.forms import attempt, done, shown_again
from refine.web.links import url_in_account
from refine.web.people import user_to_change

pages = scope.area("sign_ins")


@pages.get("/profile/sign-ins")
def listing() -> str:
    sign_ins = SignIn.open_of(scope.user())
    return render_template("sign_ins/page.html", sign_ins=sign_ins, current=scope.sign_in())


@pages.post("/profile/sign-ins/<int:sign_in_id>/end")
def end(sign_in_id: int) -> ResponseReturnValue:
    for each in SignIn.open_of(scope.user()):
        if each.id == sign_in_id:
            each.end()
    return done("That sign-in has ended.", url_for("sign_ins.listing"))


@pages.post("/profile/sign-ins/end")
def end_all() -> ResponseReturnValue:
    """End all but this one, or with ``this`` also this one."""
    user, current = scope.user(), scope.sign_in()
    user.lock()  # nobody signs in meanwhile
    but = None if request.form.get("this") == "1" else current
    return _end_all(user, url_for("sign_ins.listing"), but=but)


@pages.post("/users/<int:user_id>/sign-ins/end")
@scope.admins_only
def end_all_of(user_id: int) -> ResponseReturnValue:
    user = user_to_change(user_id)
    user.lock_for(scope.user())
    return _end_all(user, url_in_account("people.listing"))


def _end_all(user: User, url: str, but: SignIn | None = None) -> ResponseReturnValue:
    ended = SignIn.end_all_of(user, but=but)
    user.record("user_signed_out_everywhere", by=scope.user(), data={"sign_ins": ended})
    return done(f"{plural(ended, 'sign-in')} of {user.email} ended.", url)


locks = scope.area("locking")


@locks.get("/users/<int:user_id>/lock")
@locks.get("/accounts/<int:account_id>/lock")
@scope.confirmed_admins_only
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
@scope.confirmed_admins_only
@shown_again(lock_form)
def lock(**ids: Any) -> ResponseReturnValue:
    reason, ends_tokens = request.form.get("reason", ""), "tokens" in request.form
    ended = locking.lock(_subject(**ids), reason, scope.user(), ends_tokens=ends_tokens)
    return done(f"Locked. Ended: {locking.in_words(ended)}.", _back(**ids))


@locks.post("/users/<int:user_id>/unlock")
@locks.post("/accounts/<int:account_id>/unlock")
@scope.confirmed_admins_only
def unlock(**ids: Any) -> ResponseReturnValue:
    subject = _subject(**ids)
    return attempt(lambda: locking.unlock(subject, scope.user()), "Unlocked.", _back(**ids))


def _subject(user_id: int | None = None, account_id: int | None = None) -> User | Account:
    if user_id is not None:
        return user_to_change(user_id)
    if not scope.user().site_admin:
        abort(403)
    return scope.found_or_404(Account, account_id or 0)


def _back(user_id: int | None = None, account_id: int | None = None) -> str:
    return url_for("accounts.listing") if account_id else url_in_account("people.listing")
