"""Content under a live grant of the user's own, else None: no other page module loads content."""

import uuid
from collections.abc import Callable
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar, cast

from flask import Flask, Response, after_this_request, g, request, url_for
from flask_login import current_user

from refine.access import reading
from refine.access.reading import (
    MAX_RECORDS,
    MAX_SEARCHED_CHARACTERS,
    WITH_PURPOSE,
    LiveGrant,
    NoAccess,
    TextChange,
)
from refine.extensions import db
from refine.models import AccessGrant, User
from refine.web import in_place, scope

__all__ = ["MAX_RECORDS", "MAX_SEARCHED_CHARACTERS", "WITH_PURPOSE", "TextChange"]

P = ParamSpec("P")
T = TypeVar("T")


def register(app: Flask) -> None:
    app.context_processor(lambda: {"live_grants": live, "shown_under": g.get("shown_under")})


def _leave_when_access_ends(grant: LiveGrant, response: Response) -> Response:
    """Have the browser leave a page with content when the access ends, and keep no copy of it."""
    ended = url_for("access.page", grant_id=grant.id, over=1)
    response.headers["Cache-Control"] = "no-store, private"
    response.headers["Pragma"] = "no-cache"
    # a header, as accessibility tools object to a meta element that redirects
    response.headers["Refresh"] = f"{grant.seconds_left + 1}; url={ended}"
    return response


def live() -> list[LiveGrant]:
    if not current_user.is_authenticated:
        return []
    if "live_grants" not in g:
        g.live_grants = reading.live_grants(scope.user())
    return cast(list[LiveGrant], g.live_grants)


def active_grant_for(agent_id: int | None) -> LiveGrant | None:
    return next((grant for grant in live() if grant.agent_id == agent_id), None)


def may_see_purpose(grant: AccessGrant) -> bool:
    return scope.user().id == grant.user_id or scope.user().may_act


def purpose_of(grant: AccessGrant) -> str | None:
    return reading.purpose_of(grant) if may_see_purpose(grant) else None


def _opening(
    read: Callable[Concatenate[uuid.UUID, User, P], T],
) -> Callable[Concatenate[int | None, P], T | None]:
    def opened(agent_id: int | None, /, *args: P.args, **kwargs: P.kwargs) -> T | None:
        grant = active_grant_for(agent_id)
        if grant is None:
            return None
        if in_place.is_asked() and request.method == "GET":
            g.shown_under = grant  # the browser is sent to the page itself, and reads it then
            return None
        try:
            found = read(grant.id, scope.user(), *args, **kwargs)
        except NoAccess:  # it ended a moment ago
            db.session.rollback()
            g.pop("live_grants", None)
            return None
        g.shown_under = grant
        after_this_request(partial(_leave_when_access_ends, grant))
        return found

    return opened


memories = _opening(reading.memories)
search = _opening(reading.search)
record = _opening(reading.read_record)
versions = _opening(reading.versions)
session = _opening(reading.session)
prompts = _opening(reading.prompts)
