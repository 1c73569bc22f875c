"""What the browser needs to change a page in place, without reloading it.

There are no answers for parts of pages: a form that changes its page in place, and a page that
keeps itself fresh, ask for the whole page and take its main part. So every page works without
script.
"""

from urllib.parse import urlsplit

from flask import Response, g, request

from refine.web.links import asked_for

# How often a page refreshes: that of one run, and lists in which something runs.
WATCHED_SECONDS = 2
LISTED_SECONDS = 10
# Says that an answer is a page of Refine: that of a proxy never takes a page's place.
PAGE_HEADER = "Refine-Page"


def seconds_while(something_runs: object) -> int | None:
    """Return how often a list refreshes; None if nothing in it runs."""
    return LISTED_SECONDS if something_runs else None


def is_asked() -> bool:
    return "HX-Request" in request.headers


def prepare(response: Response) -> Response:
    """Mark a page as ours; send the browser itself where a page cannot be changed in place.

    That is to another page, which shows its messages there; and to content, which has to leave the
    screen when the access to it ends.
    """
    response.headers[PAGE_HEADER] = "1"
    if is_asked():
        if response.location is not None and not _is_current(response.location):
            return _sent_to(response, response.location)
        if "shown_under" in g:
            return _sent_to(response, asked_for())
    return response


def _is_current(location: str) -> bool:
    try:
        return urlsplit(location).path == urlsplit(request.headers.get("HX-Current-URL", "")).path
    except ValueError:  # the header is no URL
        return False


def _sent_to(response: Response, location: str) -> Response:
    """Empty the response, but for its other headers: the browser goes to the location itself."""
    response.status_code = 200
    response.set_data(b"")
    response.headers.pop("Location", None)
    response.headers["HX-Redirect"] = location
    return response
