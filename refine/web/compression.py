"""Compresses pages and static files, but nothing in which lengths could tell a secret (BREACH).

Who can see the lengths of compressed answers and have a browser ask for them again and again, each
time with a guess that the page repeats, learns what else stands there. Another site cannot pose as
the reader or as a page of ours, so only what these ask for is compressed. Content, answers to
forms, which may show a secret once, and public pages, such as an invitation, never are.
"""

import gzip

from flask import Flask, Response, g, request

from refine.web import scope

_LEVEL = 6


def register(app: Flask) -> None:
    app.view_functions["static"] = lambda filename: _compressed(app.send_static_file(filename))


def compress_page(response: Response) -> Response:
    may_be_compressed = (
        response.mimetype == "text/html"
        and request.method == "GET"
        and request.headers.get("Sec-Fetch-Site") in ("same-origin", "none")
        and not scope.is_public(request.endpoint)
        and "shown_under" not in g
    )
    return _compressed(response) if may_be_compressed else response


def _compressed(response: Response) -> Response:
    response.vary.add("Accept-Encoding")
    if response.status_code != 200 or not request.accept_encodings.quality("gzip"):  # noqa: PLR2004
        return response
    response.direct_passthrough = False
    response.set_data(gzip.compress(response.get_data(), _LEVEL, mtime=0))
    response.content_encoding = "gzip"
    tag, _ = response.get_etag()
    if tag is not None:
        response.set_etag(tag, weak=True)
    return response
