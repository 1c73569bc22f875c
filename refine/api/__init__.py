"""The HTTP API: ``/api/v1``, for programs that bear a token.

``routing`` takes every request through ``authenticating`` and ``limiting``, has ``schemas`` check
it, and ``idempotency`` recognize one that is sent again; ``problems`` are its errors, ``document``
describes it. Each other module is about one kind of thing. What no human may read, the agent may:
it is the agent's own. The modules of platform tokens read none of it.
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
