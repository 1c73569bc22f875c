"""The pages, one module for each area."""

from flask import Flask

from refine.extensions import csrf
from refine.web import (
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

_AREAS = [
    status.pages,
    signing_in.pages,
    single_sign_on.pages,
    second_factor.pages,
    overview.pages,
    find.pages,
    agents.pages,
    bulk.pages,
    agent.pages,
    ledger.pages,
    agent_settings.pages,
    sessions.pages,
    usage.pages,
    access.pages,
    audit.pages,
    schedule.pages,
    deliveries.pages,
    ops.pages,
    people.pages,
    sign_ins.pages,
    sign_ins.locks,
    people.accounts,
    people.tokens,
    views.pages,
    wall.pages,
    mail.letter,
    mail.inbox,
]

# once, at import: a blueprint accepts no hooks once it has been registered
for _area in _AREAS:
    scope.protect(_area)
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
    for area in _AREAS:
        app.register_blueprint(area)
