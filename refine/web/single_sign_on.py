"""Signing in at a provider of identities, and again before asking for access."""

from datetime import UTC, datetime, timedelta
from hmac import compare_digest
from typing import Any

from flask import abort, redirect, request, session, url_for
from flask.typing import ResponseReturnValue
from flask_login import current_user, login_user

from refine import clock, settings
from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import PasswordGuess
from refine.models.single_sign_on import Identity
from refine.rules.content import email_address
from refine.rules.role_claims import roles_claimed
from refine.web import scope, second_factor, signing_in
from refine.web.forms import next_path, shown_again
from refine.web.identity_provider import LEEWAY_SECONDS, IdentityProvider, provider_of
from refine.web.links import public_url

pages = scope.area("single_sign_on")

# How long somebody may take at the provider; how long ago they signed in there to count as
# confirmed.
PENDING_FOR = timedelta(minutes=10)
FRESH_FOR = timedelta(minutes=5)
_PENDING = "oidc"


def _shown(error: Exception) -> str:
    signed_in = current_user.is_authenticated
    return signing_in.confirm(error) if signed_in else signing_in.form_page(error)


@pages.get("/sign-in/provider")
@scope.public
@shown_again(_shown)
def start() -> ResponseReturnValue:
    """Send somebody to the provider; who is signed in confirms that it is still them."""
    is_again = current_user.is_authenticated
    fresh = {"prompt": "login", "max_age": FRESH_FOR.seconds} if is_again else {}
    begun = _provider().begin(_callback(), **fresh)
    url = begun.pop("url")
    # in the browser's signed cookie: an answer that comes to another browser is refused
    until = (clock.now() + PENDING_FOR).timestamp()
    session[_PENDING] = {**begun, "next": next_path(), "until": until}
    return redirect(url, 303)


@pages.get("/sign-in/provider/callback")
@scope.public
@shown_again(_shown)
def callback() -> ResponseReturnValue:
    provider, pending = _provider(), session.pop(_PENDING, {})
    target = pending.get("next") or url_for("overview.page")
    with second_factor.guessing(PasswordGuess("", request.remote_addr or "?"), way="oidc"):
        claims = _claims(provider, pending)
        identity, confirmed_at = _identity(claims), _confirmed_at(claims)
        if current_user.is_authenticated:
            _confirm(identity, confirmed_at)
        else:
            given = {"way": "oidc", "confirmed_at": confirmed_at}
            target = second_factor.begin(identity.admit(), target, **given)
    db.session.commit()
    return redirect(target, 303)


def _claims(provider: IdentityProvider, pending: dict[str, Any]) -> Any:
    given = request.args
    is_ours = compare_digest(pending.get("state", "").encode(), given.get("state", "").encode())
    if not pending or not is_ours or pending["until"] < clock.now().timestamp():
        raise InvalidValue("this browser did not ask for that, or too long ago; try again")
    verifier, nonce = pending["code_verifier"], pending["nonce"]
    return provider.claims(given.get("code", ""), _callback(), verifier, nonce)


def _identity(claims: Any) -> Identity:
    is_verified = claims.get("email_verified") is True
    return Identity(
        issuer=claims["iss"],
        subject=claims["sub"],
        email=email_address(claims.get("email")) if is_verified else None,
        roles=roles_claimed(claims.get(settings.current().oidc_role_claim)),
    )


def _confirmed_at(claims: Any) -> datetime:
    """Return when they last signed in there, or long ago if the provider does not say."""
    at, now = claims.get("auth_time", 0), clock.now().timestamp()
    return datetime.fromtimestamp(at if 0 < at <= now + LEEWAY_SECONDS else 0, UTC)


def _confirm(identity: Identity, at: datetime) -> None:
    if not identity.is_of(scope.user()) or at < clock.now() - FRESH_FOR:
        raise InvalidValue("sign in at your provider again, as yourself")
    identity.admit()
    if not scope.sign_in().is_still_valid():
        raise InvalidValue("you were signed out meanwhile; sign in again")
    login_user(scope.sign_in().renewed(confirmed_at=clock.now()))


def _provider() -> IdentityProvider:
    if settings.current().oidc_issuer is None:
        abort(404)
    return provider_of(settings.current())


def _callback() -> str:
    return public_url("single_sign_on.callback")
