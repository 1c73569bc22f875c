"""The pages, one module for each area."""

from flask import Flask

from refine.extensions import csrf

# an import adds the areas of its module
from refine.web import (  # noqa: F401
    access,
    agent,
    agent_settings,
    agents,
    audit,
    bulk,
    compression,
    deliveries,
    find,
    granted,
    in_place,
    ledger,
    links,
    mail,
    ops,
    overview,
    people,
    schedule,
    scope,
    second_factor,
    sessions,
    sign_ins,
    signing_in,
    single_sign_on,
    status,
    templating,
    usage,
    views,
    wall,
)

# once, at import: a blueprint accepts no hooks once it has been registered
for _area in scope.areas:
    # the last one runs first
    _area.after_request(compression.compress_page)
    _area.after_request(in_place.prepare)


def register(app: Flask) -> None:
    app.config["WTF_CSRF_CHECK_DEFAULT"] = False  # checked by the hooks of each area instead
    csrf.init_app(app)
    compression.register(app)
    links.register(app)
    templating.register(app)
    scope.register(app)
    granted.register(app)
    for area in scope.areas:
        app.register_blueprint(area)
