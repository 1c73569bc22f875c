"""The HTTP API, ``/api/v1``, for programs with a bearer token.

``routing`` passes each request through ``authenticating`` and ``idempotency``, and checks it by its
``schemas``. ``problems`` are the errors, ``document`` is the OpenAPI document, ``rows`` are what a
token may see. Every other module covers one kind of resource. An agent may read its own content,
which no human may; the operations of platform tokens read none.
"""

from flask import Flask

# an import adds the operations of its module
from refine.api import (  # noqa: F401
    authenticating,
    conversations,
    document,
    memories,
    oversight,
    platform,
    sessions,
    tools,
)
from refine.api.routing import api
from refine.settings import Settings


def register(app: Flask, settings: Settings) -> None:
    authenticating.register(app, settings)
    app.register_blueprint(api)
