"""The pages, one module for each area.

``scope`` says who asks and what they may see; ``granted`` what agents let them read; ``words`` how
pages say things; ``charts`` what plots look like; ``paging`` how long lists are cut; ``errors``
what is shown where something goes wrong; ``uploads`` keeps files that people send in memory.
"""

from flask import Flask

from refine.extensions import csrf
from refine.web import (
    access,
    accounts,
    agent,
    agents,
    audit,
    errors,
    granted,
    headers,
    importing,
    metrics,
    ops,
    overview,
    people,
    schedule,
    sessions,
    signing_in,
    status,
    tokens,
    uploads,
    words,
)


def register(app: Flask) -> None:
    """Add every page, and what all of them share."""
    app.request_class = uploads.Request
    csrf.init_app(app)
    headers.register(app)
    errors.register(app)
    words.register(app)
    signing_in.register(app)
    granted.register(app)
    for area in (
        *(status, metrics, signing_in, overview, agents, agent, importing),
        *(sessions, access, audit, schedule, ops, people, accounts, tokens),
    ):
        app.register_blueprint(area.pages)
