"""Static files, kept by browsers for as long as they stay the same: their URLs carry a digest."""

from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from flask import Flask, request, url_for

_A_YEAR_IN_SECONDS = 31_536_000


def register(app: Flask) -> None:
    """Add the digest of each static file to its URL, and have what is asked for by it kept."""
    assert app.static_folder is not None  # noqa: S101 - the application names it; for mypy
    folder = Path(app.static_folder)

    @cache
    def digest(name: str) -> str:
        return sha256((folder / name).read_bytes()).hexdigest()[:12]

    @app.url_defaults
    def add_digest(endpoint: str, values: dict[str, Any]) -> None:
        if endpoint == "static":
            values["v"] = digest(values["filename"])

    @lru_cache(maxsize=256)  # bounded, as in ``links``
    def url(_script_root: str, name: str) -> str:
        return url_for("static", filename=name)

    @app.template_global()
    def asset(name: str) -> str:
        """Return the URL of a static file; built once, because every page has several."""
        return url(request.script_root, name)

    def seconds_kept(name: str | None) -> int | None:
        is_current = (folder / str(name)).is_file() and request.args.get("v") == digest(str(name))
        return _A_YEAR_IN_SECONDS if is_current else None

    app.get_send_file_max_age = seconds_kept  # type: ignore[assignment, method-assign]
