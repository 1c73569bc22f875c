"""Signing in and out, invitations, and passwords."""

from datetime import datetime
from typing import Any

from flask import abort, redirect, render_template, request, session, url_for
from flask.typing import ResponseReturnValue
from flask_login import current_user, login_user, logout_user

from refine import clock, refusals, settings
from refine.errors import InvalidValue, Refused
from refine.extensions import db
from refine.models import AccessGrant, Invitation, Mail, PasswordGuess, SignIn, User
from refine.models.audit import PLATFORM, AuditLog
from refine.models.people.invitation import VALID_FOR
from refine.rules.content import email_address
from refine.rules.quantities import in_days
from refine.web import scope, second_factor
from refine.web.forms import done, next_path, shown_again

pages = scope.area("signing_in")


@pages.get("/sign-in")
@scope.public
def form() -> ResponseReturnValue:
    if current_user.is_authenticated:
        return redirect(_target())
    return form_page()


@pages.post("/sign-in")
@scope.public
@shown_again(lambda error: form_page(error))
def sign_in() -> ResponseReturnValue:
    """Check e-mail and password; neither answer nor time tells who has an account."""
    email, password = request.form.get("email", ""), request.form.get("password", "")
    guess = PasswordGuess(email, request.remote_addr or "?")
    # with the same work whether or not the user exists
    with second_factor.guessing(guess, User.by_email(email)):
        user = User.with_password(email, password)
        if user is None:
            raise InvalidValue("incorrect e-mail or password")
    target = second_factor.begin(user, _target())
    db.session.commit()
    return redirect(target, 303)


@pages.post("/sign-out")
def sign_out() -> ResponseReturnValue:
    user = scope.user()
    scope.sign_in().end()
    user.record("user_signed_out", by=user)
    db.session.commit()
    logout_user()
    session.clear()
    answer = redirect(url_for("signing_in.form"), 303)
    answer.headers["Clear-Site-Data"] = '"cache"'
    return answer


@pages.get("/invitations/<secret>")
@scope.public
def invitation(secret: str, error: Exception | None = None) -> ResponseReturnValue:
    found = Invitation.by_secret(secret)
    if found is None:
        return _gone()
    return render_template("signing_in/invitation.html", invitation=found, error=error)


@pages.post("/invitations/<secret>")
@scope.public
@shown_again(invitation)
def accept(secret: str) -> ResponseReturnValue:
    found = Invitation.by_secret(secret)
    if found is None:
        return _gone()
    had_password = found.user.password_hash is not None
    found.user.client = refusals.client()
    try:
        user = found.accept(_new_password())
    except Refused:  # whoever invited must not learn that another account has the address
        db.session.rollback()
        about: dict[str, Any] = {"subject": found.user, "client": refusals.client()}
        AuditLog.record("user_join_refused", chain=PLATFORM, **about)
        db.session.commit()
        return _gone()
    AccessGrant.end_all_of(user, by=found.issued_by)  # it locks agents: before any record
    SignIn.end_all_of(user)
    action = "user_password_changed" if had_password else "user_joined"
    user.record(action, by=user, data={"through": "link", "issued_by": found.issued_by_id})
    target = second_factor.begin(user, url_for("overview.page"))
    db.session.commit()
    return redirect(target, 303)


def _gone() -> ResponseReturnValue:
    advice = (
        f"An invitation can be used once, within {in_days(VALID_FOR)}, and one address can join "
        "only one account. Sign in if you already have a password, or ask an admin of your account "
        "for a new invitation."
    )
    title = "This link is no longer valid"
    return render_template("errors/page.html", title=title, advice=advice), 404


@pages.get("/forgotten")
@scope.public
def forgotten(**shown: object) -> str:
    _require_mail()
    return render_template("signing_in/forgotten.html", **shown)


@pages.post("/forgotten")
@scope.public
@shown_again(forgotten)
def remind() -> ResponseReturnValue:
    """Queue a link; whose address it is is looked up when it is sent, so that neither the answer
    nor its time tells who has an account.
    """
    _require_mail()
    address = email_address(request.form.get("email", ""))
    second_factor.count_and_commit(
        PasswordGuess(f"forgotten {address}", request.remote_addr or "?")
    )
    Mail.remind(address, clock.now())
    db.session.commit()
    return forgotten(address=address)


def _require_mail() -> None:
    if settings.current().mail_url is None:
        abort(404)


@pages.get("/profile")
def profile(error: Exception | None = None) -> str:
    return render_template("signing_in/profile.html", error=error)


@pages.get("/profile/confirm")
def confirm(error: Exception | None = None) -> str:
    return render_template(
        "signing_in/confirm.html",
        next=next_path(),
        error=error,
        wants_password=_wants_password(),
        wants_factor=not scope.sign_in().has_fresh_factor(),
    )


@pages.post("/profile/confirm")
@shown_again(confirm)
def confirm_password() -> ResponseReturnValue:
    before, given = scope.sign_in(), dict[str, datetime]()
    if _wants_password():
        _check_current_password()
        given["confirmed_at"] = clock.now()
    if not before.has_fresh_factor():
        second_factor.check(before)
        given["factor_at"] = clock.now()
    # whoever copied the cookie before has not confirmed: this browser gets a new one
    login_user(before.renewed(**given))
    db.session.commit()
    return redirect(_target(), 303)


def _wants_password() -> bool:
    """Whoever lacks only a fresh second factor need not enter the password, too."""
    sign_in = scope.sign_in()
    return not sign_in.has_fresh_password() or sign_in.has_fresh_factor()


@pages.post("/profile/password")
@shown_again(profile)
def change_password() -> ResponseReturnValue:
    user = scope.user()
    _check_current_password()
    user.set_password(_new_password())
    # a copied cookie ends, too: this browser gets a new one
    SignIn.end_all_of(user)
    Invitation.end_all_of(user)
    user.record("user_password_changed", by=user)
    second_factor.let_in(SignIn.begin(user, factor_at=scope.sign_in().factor_at), is_new=False)
    said = "Password changed. You were signed out of all other browsers."
    return done(said, url_for("signing_in.profile"))


def form_page(error: Exception | None = None) -> str:
    email = request.form.get("email", "")
    return render_template("signing_in/sign_in.html", error=error, email=email, next=next_path())


def _check_current_password() -> None:
    user = scope.user()
    guess = PasswordGuess(user.email, request.remote_addr or "?", scope.sign_in().id)
    with second_factor.guessing(guess, user, by=user):
        if not user.has_password(request.form.get("current_password", "")):
            raise InvalidValue("the current password is wrong")
    db.session.commit()
    if not scope.sign_in().is_still_valid():
        raise InvalidValue("you were signed out meanwhile; sign in again")


def _new_password() -> str:
    chosen = request.form.get("password", "")
    if chosen != request.form.get("confirm_password", ""):
        raise InvalidValue("the two passwords do not match")
    return chosen


def _target() -> str:
    return next_path() or url_for("overview.page")
