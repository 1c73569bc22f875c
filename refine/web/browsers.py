"""What browsers keep and tell: cookies, known devices, and where a request comes from."""

from urllib.parse import urlsplit

from flask import abort, after_this_request, current_app, request
from itsdangerous import BadData, URLSafeTimedSerializer
from werkzeug.wrappers import Response

from refine import settings
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


SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def refuse_other_sites() -> None:
    """Refuse to change anything for another site or origin, in addition to the CSRF token."""
    if request.method not in SAFE_METHODS and not _may_be_own():
        abort(403, "This request came from another site.")


def _may_be_own() -> bool:
    """No page can forge ``Sec-Fetch-Site``; our own forms send the Origin "null"."""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin", "null")
    if site is not None:
        return site in ("same-origin", "none")
    public = urlsplit(settings.current().public_url)._replace(path="").geturl()
    return origin in ("null", f"{request.scheme}://{request.host}", public)
