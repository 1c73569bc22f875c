"""Second factors: giving one to be let in, adding and removing one's own."""

import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, cast

import pyotp
import segno
from flask import Response, g, redirect, render_template, request, session, url_for
from flask.typing import ResponseReturnValue
from flask_login import current_user, login_user

from refine import clock, refusals
from refine.errors import InvalidValue, Refused, TooMany
from refine.extensions import db
from refine.models import PasswordGuess, SecondFactor, SharedCount, SignIn, User
from refine.models.audit import PLATFORM, AuditLog
from refine.models.keys import keyed_hash
from refine.models.people import passkeys
from refine.models.people.second_factor import FACTORS, handle_of
from refine.models.people.sign_in import CONFIRMED_FOR, FACTOR_FOR
from refine.web import scope
from refine.web.forms import done, next_path, shown_again

pages = scope.area("second_factor")

P = ParamSpec("P")
View = Callable[P, ResponseReturnValue]

_CHALLENGE_BYTES = 32


# -- being let in ----------------------------------------------------------------------------------


def begin(user: User, target: str, **given: Any) -> str:
    """Begin a sign-in, and return where it leads: to the target, or to the factor that it lacks."""
    user.client = refusals.client()
    begun = SignIn.begin(user, **given)
    let_in(begun)
    return url_for("second_factor.form", next=target) if begun.is_waiting else target


def let_in(begun: SignIn, *, is_new: bool = True) -> None:
    """Give a new cookie, which keeps nothing of the previous one; while a factor is lacking, one
    that opens nothing.
    """
    session.clear()
    g.pop("csrf_token", None)  # the one of the previous session
    if begun.is_waiting:
        session["waiting"] = begun.get_id()
        return
    login_user(begun)
    if is_new:
        begun.user.record("user_signed_in", by=begun.user)


def count_and_commit(guess: PasswordGuess) -> None:
    try:
        guess.count()
    except TooMany:
        refusals.count("password")
        db.session.commit()
        raise
    db.session.commit()


@contextmanager
def guessing(
    guess: PasswordGuess, of: User | None = None, *, by: User | None = None, **data: str
) -> Iterator[None]:
    """Count a guess before it is checked, and record a wrong one, which raises InvalidValue or
    Refused; or TooMany. It commits, but what the right one did.
    """
    count_and_commit(guess)
    try:
        yield
    except (InvalidValue, Refused):
        refusals.count("password", user=by)
        about: dict[str, Any] = {"client": refusals.client(), "data": data}
        if of is None:
            AuditLog.record("user_sign_in_failed", chain=PLATFORM, **about)
        else:
            of.record("user_sign_in_failed", by=by, **about)
        db.session.commit()  # and with it what a refusal took away
        raise
    guess.uncount()


def check(sign_in: SignIn) -> None:
    """Check the code or passkey that a form brings, and lock the user; InvalidValue, or TooMany."""
    user, address = sign_in.user, request.remote_addr or "?"
    by = user if current_user.is_authenticated else None
    with guessing(PasswordGuess(user.email, address, sign_in.id, codes_of=user.id), user, by=by):
        if answer := request.form.get("passkey"):
            SecondFactor.use_passkey(answer, _take_challenge(), user)
        else:
            user.lock()
            SecondFactor.use_code(user, request.form.get("code", ""))
    if not sign_in.is_still_valid():
        raise InvalidValue("you were signed out meanwhile; sign in again")


def _waiting() -> SignIn | None:
    """Return the sign-in of this browser that waits for a second factor."""
    if "waiting" not in g:
        g.waiting = SignIn.find_valid(session.get("waiting", ""), is_waiting=True)
        if g.waiting is not None:
            g.waiting.user.client = refusals.client()
    return cast(SignIn | None, g.waiting)


@pages.get("/sign-in/second-factor")
@scope.public
def form() -> ResponseReturnValue:
    waits = _waiting()
    if waits is None:
        return redirect(url_for("signing_in.form", next=next_path() or None), 303)
    return _form() if waits.user.has_second_factor else redirect(url_for(".listing"), 303)


def _form(error: Exception | None = None) -> str:
    waits = _waiting()
    page = "second_factor" if waits is not None else "sign_in"
    return render_template(f"signing_in/{page}.html", waits=waits, next=next_path(), error=error)


@pages.post("/sign-in/second-factor")
@scope.public
@shown_again(_form)
def give() -> ResponseReturnValue:
    """Give a factor after the password; or sign in by a passkey alone, which does not stand for
    the password, but is two factors in one: something one has, and knows or is.
    """
    at, waits, target = clock.now(), _waiting(), next_path() or url_for("overview.page")
    if waits is not None:
        check(waits)
        let_in(waits.renewed(factor_at=at))
    else:
        with guessing(PasswordGuess("", request.remote_addr or "?")):
            answer = request.form.get("passkey", "")
            user = SecondFactor.use_passkey(answer, _take_challenge())
        begin(user, target, way="passkey", confirmed_at=at - CONFIRMED_FOR, factor_at=at)
    db.session.commit()
    return redirect(target, 303)


# -- one's own -------------------------------------------------------------------------------------


def _may_enrol(view: View[P]) -> View[P]:
    """Let in whoever gave password and factor lately, or must add a first one to get in at all."""
    confirmed = scope.password_confirmed(view)

    @wraps(view)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> ResponseReturnValue:
        if current_user.is_authenticated:
            return confirmed(*args, **kwargs)
        waits = _waiting()
        if waits is not None and not waits.user.has_second_factor:
            return view(*args, **kwargs)
        return redirect(url_for("signing_in.form"), 303)

    return scope.public(guarded)


def _sign_in() -> SignIn | None:
    return scope.sign_in() if current_user.is_authenticated else _waiting()


def _locked_user() -> User:
    """Return the user, locked: whoever had to add a first factor must still have to."""
    found = _sign_in()
    is_valid = found is not None and found.is_still_valid()
    if found is None or not is_valid or (found.is_waiting and found.user.has_second_factor):
        raise InvalidValue("you were signed out meanwhile; sign in again")
    return found.user


@pages.get("/profile/second-factors")
@_may_enrol
def listing(error: Exception | None = None) -> str:
    user = cast(SignIn, _sign_in()).user
    return render_template(
        "signing_in/factors.html",
        user=user,
        factors=SecondFactor.of(user, *FACTORS),
        codes=SecondFactor.of(user, "codes"),
        error=error,
    )


def _app_form(error: Exception | None = None, **shown: str) -> str:
    return render_template("signing_in/app.html", error=error, **shown)


@pages.post("/profile/second-factors/app")
@_may_enrol
@shown_again(_app_form)
def add_app() -> ResponseReturnValue:
    """Show the key of a new app, this once; or take the code by which it counts from then on."""
    user = _locked_user()
    if "code" in request.form:
        SecondFactor.confirm_app(user, request.form["code"])
        return _after_adding(user)
    key = SecondFactor.begin_app(user)
    db.session.commit()
    uri = pyotp.TOTP(key).provisioning_uri(name=user.email, issuer_name="Refine")
    return _app_form(key=key, picture=segno.make(uri).svg_data_uri(scale=5, light="white"))


@pages.post("/profile/second-factors/passkey")
@_may_enrol
@shown_again(listing)
def add_passkey() -> ResponseReturnValue:
    challenge, user, sent = _take_challenge(), _locked_user(), request.form
    SecondFactor.add_passkey(user, sent.get("name", ""), sent.get("passkey", ""), challenge)
    return _after_adding(user)


def _after_adding(user: User) -> ResponseReturnValue:
    """Sign in anew, with the factor that was just shown; the first one brings recovery codes."""
    before, codes = cast(SignIn, _sign_in()), list[str]()
    if not SecondFactor.of(user, "codes"):
        codes = SecondFactor.make_codes(user)
        SignIn.end_all_of(user)  # they began with the password alone
    let_in(before.renewed(factor_at=clock.now()), is_new=not current_user.is_authenticated)
    db.session.commit()
    return _shown_once(codes) if codes else redirect(url_for(".listing"), 303)


@pages.post("/profile/second-factors/codes")
@scope.password_confirmed
@shown_again(listing)
def make_codes() -> ResponseReturnValue:
    user = _locked_user()
    if not user.has_second_factor:
        raise Refused("recovery codes stand in for an app or a passkey: add one first")
    codes = SecondFactor.make_codes(user)
    db.session.commit()
    return _shown_once(codes)


def _shown_once(codes: list[str]) -> str:
    return render_template("signing_in/codes.html", codes=codes)


@pages.post("/profile/second-factors/<int:factor_id>/removed")
@scope.password_confirmed
@shown_again(lambda factor_id, error: listing(error=error))
def remove(factor_id: int) -> ResponseReturnValue:
    SecondFactor.remove(_locked_user(), factor_id)
    return done("The second factor was removed.", url_for(".listing"))


# -- the challenges of passkeys, each for one answer of this browser -------------------------------


@pages.post("/passkeys/challenge")
@scope.public
def challenge() -> Response:
    """Return what a browser needs to use a passkey, or to make a new one."""
    asked = secrets.token_bytes(_CHALLENGE_BYTES)
    session["challenge"] = [b64encode(asked).decode(), clock.now().timestamp()]
    user = found.user if (found := _sign_in()) is not None else None
    mine = SecondFactor.of(user, "passkey") if user is not None else []
    ids = [each.credential_id or "" for each in mine]
    if user is not None and "new" in request.args:
        options = passkeys.options_to_create(user.email, handle_of(user), asked, ids)
    else:
        options = passkeys.options_to_use(asked, ids)
    return Response(options, mimetype="application/json")


def _take_challenge() -> bytes:
    """Return the challenge, for one answer ever; it commits. InvalidValue if it is over."""
    text, made_at = session.pop("challenge", ("", 0))
    # an older cookie could be sent again, and with it the challenge
    used = f"challenge {keyed_hash(text, 'shared_counts.key')}"
    times = SharedCount.add([used], lasts=2 * FACTOR_FOR)[used].count
    db.session.commit()
    if times > 1 or clock.now().timestamp() > made_at + FACTOR_FOR.total_seconds():
        raise InvalidValue("the passkey was asked for too long ago; try again")
    return b64decode(text)
