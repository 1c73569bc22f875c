"""The agent's side: ``/api/v1``, for programs that bear a token.

``routing`` has the way of every request: ``authenticating``, ``limiting``, ``checking``, and for
what is sent again, ``once``. ``schemas`` say what is taken and given; ``document`` shows it. Of the
rest each module answers for one kind of thing. What a human may not read, an agent may: it is the
agent's own. The modules of platform tokens read none of it.
"""

from flask import Flask

from refine.api import (
    agents,
    audit,
    context,
    conversations,
    document,
    grants,
    limiting,
    memories,
    problems,
    sessions,
    tokens,
    tools,
    usage,
)
from refine.api.routing import api
from refine.extensions import csrf
from refine.settings import Settings

__all__ = [
    "agents",
    "audit",
    "context",
    "conversations",
    "document",
    "grants",
    "memories",
    "register",
    "sessions",
    "tokens",
    "tools",
    "usage",
]


def register(app: Flask, settings: Settings) -> None:
    """Add every operation. No cookie counts here, so no form of another site can do harm."""
    limiting.register(app, settings)
    problems.register(app)
    csrf.exempt(api)
    app.register_blueprint(api)
