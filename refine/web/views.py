"""Saved views: the filters of lists, by name, kept for each user."""

from typing import NamedTuple
from urllib.parse import urlencode

from flask import abort, request, url_for
from flask.typing import ResponseReturnValue

from refine.models.people.user import MAX_VIEW_NAME_CHARACTERS, SavedView
from refine.web import agents, audit, scope, sessions
from refine.web.forms import attempt

pages = scope.area("views")

# What of the URL of each list is saved.
_SAVED = {
    "agents.listing": {*(each.name for each in agents.FILTERS), "sort", "account"},
    "sessions.listing": {*(each.name for each in sessions.FILTERS), "account"},
    "audit.page": {*(each.name for each in audit.FILTERS), "account"},
}


class Views(NamedTuple):
    """The views of a list, what of its URL would be saved, and the name it is saved under."""

    saved: list[tuple[str, str, bool]]
    query: str
    fields: dict[str, str]
    current: str | None


@pages.app_template_global()
def views_here() -> Views | None:
    listing = request.endpoint or ""
    if listing not in _SAVED:
        return None
    given = {name: text for name, text in request.args.items() if name in _SAVED[listing] and text}
    mine = [view for view in scope.user().views if view.listing == listing]
    query = urlencode(sorted(given.items()))
    current = next((view.name for view in mine if view.query == query), None)
    saved = [(view.name, _url(view), view.query == query) for view in mine]
    return Views(saved, query, {"listing": listing, **given}, current)


def _url(view: SavedView) -> str:
    return f"{url_for(view.listing)}?{view.query}"


def _asked() -> SavedView:
    listing, name = request.form.get("listing", ""), request.form.get("name", "").strip()
    if listing not in _SAVED or not name:
        abort(400, "Name the view.")
    given = sorted((each, request.form[each]) for each in _SAVED[listing] if request.form.get(each))
    return SavedView(listing, name[:MAX_VIEW_NAME_CHARACTERS], urlencode(given))


@pages.post("/views")
def save() -> ResponseReturnValue:
    view = _asked()
    return attempt(lambda: scope.user().save_view(view), f"Saved: {view.name}.", _url(view))


@pages.post("/views/deleted")
def delete() -> ResponseReturnValue:
    view = _asked()
    return attempt(lambda: scope.user().delete_view(view), f"Deleted: {view.name}.", _url(view))
