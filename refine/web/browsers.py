"""What browsers keep: cookies, and the devices on which a user has signed in."""

from flask import after_this_request, current_app, request
from itsdangerous import BadData, URLSafeTimedSerializer
from werkzeug.wrappers import Response

from refine.models import User
from refine.models.keys import new_secret

# Browsers take such a cookie only from this very host, over https, and for all of its paths: no
# neighbour under the same domain can plant one.
_HOST_PREFIX = "__Host-"


def cookie_name(name: str, *, is_https: bool) -> str:
    return f"{_HOST_PREFIX}{name}" if is_https else name


_VALID_FOR_SECONDS = 180 * 24 * 3600


def remember_device(user: User) -> None:
    # made now: once the sign-in is committed, nothing may fail
    name = _name(user)
    signed = str(_signer(user).dumps(known_device(user) or new_secret()))

    @after_this_request
    def _set_cookie(response: Response) -> Response:
        response.set_cookie(
            name,
            signed,
            max_age=_VALID_FOR_SECONDS,
            httponly=True,
            secure=current_app.config["SESSION_COOKIE_SECURE"],
            samesite=current_app.config["SESSION_COOKIE_SAMESITE"],
        )
        return response


def known_device(user: User | None) -> str | None:
    """Return the id of this browser, if the user signed in with it since their last password."""
    if user is None or user.password_hash is None:
        return None
    try:
        kept = request.cookies.get(_name(user), "")
        device = _signer(user).loads(kept, max_age=_VALID_FOR_SECONDS)
    except BadData:
        return None
    return str(device)


def _name(user: User) -> str:
    is_https = current_app.config["SESSION_COOKIE_SECURE"]
    return cookie_name(f"device-{user.id}", is_https=is_https)


def _signer(user: User) -> URLSafeTimedSerializer:
    """Sign for this user and password: the cookie of another one is invalid."""
    assert current_app.secret_key is not None  # noqa: S101 - the settings require one; for mypy
    return URLSafeTimedSerializer(
        current_app.secret_key, salt=f"device {user.id} {user.password_hash}"
    )
