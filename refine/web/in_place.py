"""Changes a page in place, by its main part: every page works without script, too."""

from urllib.parse import urlsplit

from flask import Response, g, request

from refine.web.links import asked_for

# How often a page refreshes: that of one run, and lists in which something runs.
WATCHED_SECONDS = 2
LISTED_SECONDS = 10
# Marks an answer as a page of Refine, so that no page of a proxy takes its place.
PAGE_HEADER = "Refine-Page"


def seconds_while(something_runs: object) -> int | None:
    return LISTED_SECONDS if something_runs else None


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
    return response


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
