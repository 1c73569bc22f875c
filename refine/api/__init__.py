"""The HTTP API, ``/api/v1``, for programs with a bearer token: one module per kind of resource."""

from flask import Flask

# an import adds the operations of its module
from refine.api import (  # noqa: F401
    authenticating,
    conversations,
    document,
    memories,
    moving,
    oversight,
    platform,
    sessions,
    tools,
    webhooks,
)
from refine.api.routing import api
from refine.settings import Settings


def register(app: Flask, settings: Settings) -> None:
    authenticating.register(app, settings)
    app.register_blueprint(api)
