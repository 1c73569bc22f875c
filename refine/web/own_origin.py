"""Which requests come from our own pages: what browsers say about where a request comes from."""

from urllib.parse import urlsplit

from flask import abort, request

from refine import settings

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def refuse_others() -> None:
    """Refuse to change anything for another site or origin, in addition to the CSRF token."""
    if request.method not in SAFE_METHODS and _is_own() is False:
        abort(403, "This request came from another site.")


def is_proven() -> bool:
    """Tell whether a browser says that the request comes from one of our own pages."""
    return _is_own() is True


def _is_own() -> bool | None:
    """None if the client does not say: old browsers never do, others only over HTTPS.

    No page can forge ``Sec-Fetch-Site``. ``Origin`` is "null" for our own forms, which send no
    referrer, but also for others.
    """
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin", "null")
    if site is not None:
        return {"same-origin": True, "none": None}.get(site, False)
    if origin == "null":
        return None
    public = urlsplit(settings.current().public_url)._replace(path="").geturl()
    return origin in (f"{request.scheme}://{request.host}", public)
