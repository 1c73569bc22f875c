"""Signing in and out, invitations, and passwords."""

from urllib.parse import urlsplit

from flask import (
    Blueprint,
    Flask,
    Response,
    abort,
    current_app,
    flash,
    make_response,
    redirect,
    render_template,
    request,
    session,
    url_for,
)
from flask.typing import ResponseReturnValue
from flask_login import current_user, login_user, logout_user

from refine.errors import InvalidValue, TooMany
from refine.extensions import csrf, db, login
from refine.models import AuditLog, Invitation, SignIn, SignInFailure, User
from refine.models.audit import PLATFORM
from refine.web import scope

pages = Blueprint("signing_in", __name__)

_SAFE = ("GET", "HEAD", "OPTIONS")


def register(app: Flask) -> None:
    """Let the pages know who is signed in.

    Not by ``login.init_app``: it hooks into every response, the API's too, to refresh a cookie for
    remembered users, and nobody is remembered beyond a session.
    """
    app.login_manager = login  # type: ignore[attr-defined]
    app.context_processor(lambda: {"current_user": current_user})
    login.user_loader(SignIn.live)


def protect(area: Blueprint) -> None:
    """Require a CSRF token for every form of an area, and a sign-in except on public pages."""
    area.before_request(lambda: csrf.protect(apply_exemptions=True))
    area.before_request(_refuse_other_sites)
    area.before_request(_require_sign_in)


@pages.get("/sign-in")
@scope.public
def form() -> ResponseReturnValue:
    if current_user.is_authenticated:
        return redirect(_target())
    return _form()


@pages.post("/sign-in")
@scope.public
def sign_in() -> ResponseReturnValue:
    """Check e-mail and password; neither answer nor time tells who has an account."""
    email, password = request.form.get("email", ""), request.form.get("password", "")
    address = request.remote_addr or "?"
    try:
        SignInFailure.refuse_too_many(email, address)
    except TooMany as refusal:
        answer = make_response(_form(str(refusal).capitalize() + ".", email), 429)
        answer.headers["Retry-After"] = str(refusal.retry_after_seconds)
        return answer
    user = User.with_password(email, password)
    if user is None:
        SignInFailure.note(email, address)
        _record_failure(email)
        db.session.commit()
        return _form("Incorrect e-mail or password.", email), 422
    _begin(user)
    db.session.commit()
    return redirect(_target(), 303)


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
def invitation(secret: str) -> ResponseReturnValue:
    found = Invitation.by_secret(secret)
    if found is None:
        return render_template("signing_in/invitation_gone.html"), 404
    return render_template("signing_in/invitation.html", invitation=found)


@pages.post("/invitations/<secret>")
@scope.public
def accept(secret: str) -> ResponseReturnValue:
    found = Invitation.by_secret(secret)
    if found is None:
        return render_template("signing_in/invitation_gone.html"), 404
    try:
        user = found.accept(_new_password())
    except InvalidValue as error:
        page = render_template("signing_in/invitation.html", invitation=found, error=error)
        db.session.rollback()
        return page, 422
    SignIn.end_all(user)
    user.record("user_joined", by=user)
    _begin(user)
    db.session.commit()
    return redirect(url_for("overview.page"), 303)


@pages.get("/profile")
def profile() -> ResponseReturnValue:
    return render_template("signing_in/profile.html")


@pages.post("/profile/password")
def change_password() -> ResponseReturnValue:
    user = scope.user()
    try:
        if not user.has_password(request.form.get("current_password", "")):
            raise InvalidValue("the current password is wrong")
        user.set_password(_new_password())
    except InvalidValue as error:
        db.session.rollback()
        return render_template("signing_in/profile.html", error=error), 422
    SignIn.end_all(user, except_for=scope.sign_in())
    user.record("user_password_changed", by=user)
    db.session.commit()
    flash("Password changed. You were signed out of all other browsers.")
    return redirect(url_for("signing_in.profile"), 303)


def _form(error: str | None = None, email: str = "") -> str:
    return render_template("signing_in/sign_in.html", error=error, email=email, next=_next())


def _begin(user: User) -> None:
    """Sign in with a new cookie: nothing of the previous one is kept."""
    session.clear()
    login_user(SignIn.begin(user))
    user.record("user_signed_in", by=user)


def _record_failure(email: str) -> None:
    """Record a failed sign-in, with the same work whether or not the user exists."""
    known = User.by_email(email)
    if known is not None:
        known.record("user_sign_in_failed")
    else:
        AuditLog.record("user_sign_in_failed", chain=PLATFORM)


def _new_password() -> str:
    chosen = request.form.get("password", "")
    if chosen != request.form.get("confirm_password", ""):
        raise InvalidValue("the two passwords do not match")
    return chosen


def _next() -> str:
    """The page to go to after signing in; empty unless it is on this site."""
    path = request.values.get("next", "")
    parts = urlsplit(path)
    is_local = path.startswith("/") and not path.startswith("//") and "\\" not in path
    return path if is_local and not parts.netloc and not parts.scheme else ""


def _target() -> str:
    return _next() or url_for("overview.page")


def _refuse_other_sites() -> None:
    """Refuse what a browser says comes from another site: a second lock beside the CSRF token."""
    if request.method not in _SAFE and request.headers.get("Sec-Fetch-Site") == "cross-site":
        abort(403)


def _require_sign_in() -> Response | None:
    view = current_app.view_functions[request.endpoint or ""]
    if getattr(view, "is_public", False) or current_user.is_authenticated:
        return None
    if request.headers.get("HX-Request"):  # a fragment: have htmx load the sign-in page instead
        answer = make_response("", 401)
        page = urlsplit(request.headers.get("HX-Current-URL", "")).path
        answer.headers["HX-Redirect"] = url_for("signing_in.form", next=page or None)
        return answer
    here = request.full_path.rstrip("?") if request.method in _SAFE else ""
    return make_response(redirect(url_for("signing_in.form", next=here or None), 303))
