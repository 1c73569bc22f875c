"""The HTTP API, ``/api/v1``, for programs with a bearer token.

``routing`` passes every request through ``authenticating``, ``limiting`` and, for repeated ones,
``idempotency``; ``schemas`` validates it. ``problems`` are the errors; ``document`` is the OpenAPI
document. Every other module covers one kind of resource. An agent may read its own content, which
no human may; the operations of platform tokens read none.
"""

from flask import Flask

# an import adds the operations of its module
from refine.api import (  # noqa: F401
    agents,
    audit,
    context,
    conversations,
    document,
    grants,
    limiting,
    memories,
    sessions,
    tokens,
    tools,
    usage,
)
from refine.api.routing import api
from refine.settings import Settings


def register(app: Flask, settings: Settings) -> None:
    limiting.register(app, settings)
    app.register_blueprint(api)
