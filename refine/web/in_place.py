"""Changes a page in place, by its main part: every page works without script, too."""

import re
from hashlib import sha256
from urllib.parse import urlsplit

from flask import Response, g, request

from refine import clock
from refine.web import scope
from refine.web.links import asked_for

# How often a page refreshes: that of one run, one on which something runs, and any other.
WATCHED_SECONDS = 2
_BUSY_SECONDS = 10
_IDLE_SECONDS = 30
# Marks an answer as a page of Refine, so that no page of a proxy takes its place.
PAGE_HEADER = "Refine-Page"
# The places on a page that refreshes for its version and its time; no text can look like these.
_VERSION = 'data-version=""'
_AS_OF = 'data-as-of=""'
_AS_OF_SHOWN = 'id="as-of">'
# What differs each time: the tokens of forms, and how long an access lasts, which the page counts.
_NO_NEWS = re.compile(r'(?:name="csrf_token" value|data-left)="[^"]*"|\d+ minutes? left\.')


def seconds_while(something_runs: object) -> int:
    return _BUSY_SECONDS if something_runs else _IDLE_SECONDS


def is_asked() -> bool:
    return "HX-Request" in request.headers


def prepare(response: Response) -> Response:
    """Mark a page as ours; reload for other pages, and for content, to clear the screen."""
    response.headers[PAGE_HEADER] = "1"
    if is_asked():
        if response.location is not None and not _is_current(response.location):
            return _sent_to(response, response.location)
        if "shown_under" in g:
            return _sent_to(response, asked_for())
    if response.mimetype == "text/html":
        _set_version(response)
    return response


def _set_version(response: Response) -> None:
    """Answer 304 to a refresh without news."""
    page = response.get_data(as_text=True)
    if _VERSION not in page:
        return
    version = sha256(_NO_NEWS.sub("", page).encode()).hexdigest()[:16]
    as_of = f"{clock.now().astimezone(scope.zone()):%H:%M:%S}"
    page = page.replace(_VERSION, f'data-version="{version}"')
    page = page.replace(_AS_OF, f'data-as-of="{as_of}"')
    response.set_data(page.replace(_AS_OF_SHOWN, f"{_AS_OF_SHOWN}As of {as_of}."))
    response.headers["Refine-As-Of"] = as_of
    response.set_etag(version)
    response.make_conditional(request)


def _is_current(location: str) -> bool:
    try:
        return urlsplit(location).path == urlsplit(request.headers.get("HX-Current-URL", "")).path
    except ValueError:  # the header is no URL
        return False


def _sent_to(response: Response, location: str) -> Response:
    response.status_code = 200
    response.set_data(b"")
    response.headers.pop("Location", None)
    response.headers["HX-Redirect"] = location
    return response
