"""Browsers in which a user signed in before: a cookie says so, until the password changes."""

from flask import Response, after_this_request, current_app
from itsdangerous import BadData, URLSafeTimedSerializer

from refine.models import User
from refine.rules.secrets import new_secret
from refine.web import cookies

_VALID_FOR_SECONDS = 180 * 24 * 3600


def remember(user: User) -> None:
    """Give the browser a cookie by which it is known when this user signs in again."""
    # made now: once the sign-in is committed, nothing may fail
    name = _name(user)
    signed = str(_signer(user).dumps(known_device(user) or new_secret()))

    @after_this_request
    def _set_cookie(response: Response) -> Response:
        cookies.keep(response, name, signed, seconds=_VALID_FOR_SECONDS)
        return response


def known_device(user: User | None) -> str | None:
    """Return the id of this browser, if the user signed in with it since their last password."""
    if user is None or user.password_hash is None:
        return None
    try:
        device = _signer(user).loads(cookies.value_of(_name(user)), max_age=_VALID_FOR_SECONDS)
    except BadData:
        return None
    return str(device)


def _name(user: User) -> str:
    return f"device-{user.id}"


def _signer(user: User) -> URLSafeTimedSerializer:
    """Sign for this user and password: the cookie of another one is invalid."""
    assert current_app.secret_key is not None  # noqa: S101 - the settings require one; for mypy
    return URLSafeTimedSerializer(
        current_app.secret_key, salt=f"device {user.id} {user.password_hash}"
    )
