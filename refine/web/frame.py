"""What the frame around every page shows: asked for in one trip, before the page is built."""

from flask import request

from refine.extensions.statements import together
from refine.web import account_switch, alarm, granted, scope


def ask() -> None:
    """Ask for it, for a page that is looked at; each part is kept for the request."""
    if request.method == "GET" and not scope.is_public(request.endpoint):
        together(granted.live, alarm.verification_watch, account_switch.first_accounts)
