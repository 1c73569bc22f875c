"""The pages, one module for each area.

``scope`` says who is signed in and what they may see; ``granted`` what agents let them read;
``words`` what pages call things, ``formatting`` how they write times and numbers; ``links`` leads
to other pages; ``markup`` is made at once; ``templating`` is what templates know of all this;
``charts`` draws plots; ``month_cost`` says what this month costs;
``paging`` cuts long lists; ``csv_export`` sends them as files; ``errors`` shows what went wrong;
``in_place`` lets pages change without a reload; ``tables`` are cards on phones; ``assets`` has
browsers keep static files.
"""

from flask import Flask

from refine.extensions import csrf
from refine.web import (
    access,
    account_switch,
    accounts,
    agent,
    agent_settings,
    agents,
    alarm,
    assets,
    audit,
    bulk_actions,
    comparing,
    find,
    granted,
    in_place,
    ledger,
    memory,
    metrics,
    ops,
    overview,
    people,
    schedule,
    sessions,
    signing_in,
    status,
    templating,
    theme,
    tokens,
    usage,
)

_AREAS = [
    status,
    metrics,
    signing_in,
    theme,
    find,
    overview,
    agents,
    bulk_actions,
    agent,
    ledger,
    memory,
    agent_settings,
    sessions,
    usage,
    comparing,
    access,
    audit,
    schedule,
    ops,
    people,
    accounts,
    tokens,
]

# once, at import: a blueprint accepts no hooks once it has been registered
for _area in _AREAS:
    signing_in.protect(_area.pages)
    _area.pages.after_request(granted.redirect_when_access_ends)
    _area.pages.after_request(in_place.prepare)


def register(app: Flask) -> None:
    """Add every page and what they share; no hook of theirs runs for a request of the API."""
    app.config["WTF_CSRF_CHECK_DEFAULT"] = False  # checked by the hooks of each area instead
    csrf.init_app(app)
    assets.register(app)
    templating.register(app)
    signing_in.register(app)
    granted.register(app)
    theme.register(app)
    account_switch.register(app)
    alarm.register(app)
    for area in _AREAS:
        app.register_blueprint(area.pages)
