"""The pages, one module for each area."""

from flask import Flask

from refine.web import headers, status


def register(app: Flask) -> None:
    """Add every page, and the headers that all of them carry."""
    headers.register(app)
    app.register_blueprint(status.pages)
