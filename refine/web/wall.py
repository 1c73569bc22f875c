"""The wall: a square for each account, worst first, for a screen in the office. Its browser keeps
a wall token in a cookie: a link brings it behind "#", where it is in no request, log or Referer.
"""

from zoneinfo import ZoneInfo

from flask import current_app, g, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from flask_login import current_user

from refine.errors import NotFound, RowAltered
from refine.extensions import db
from refine.health import Check, clock_check, queue_check
from refine.models import ApiToken, PeriodicWork
from refine.models.agent_list import squares
from refine.rules.quantities import ago
from refine.web import in_place, scope

pages = scope.area("wall")

_KEPT_SECONDS = 365 * 24 * 3600


@pages.get("/wall")
@scope.public
def page() -> ResponseReturnValue:
    if current_user.is_authenticated:
        account_id = scope.account_id()
    elif (token := _valid(request.cookies.get(_cookie(), ""))) is not None:
        account_id = token.account_id
        g.zone = ZoneInfo(token.account.time_zone if token.account_id is not None else "UTC")
        if token.note_use():
            db.session.commit()
    else:
        return redirect(url_for("wall.form"), 303)
    return render_template(
        "wall/page.html",
        squares=squares(account_id),
        checks=_heartbeats(account_id),
        refresh_seconds=in_place.seconds_while(False),
        zone_name=scope.zone().key,
        bare=True,
    )


@pages.get("/wall/open")
@scope.public
def form(error: str | None = None) -> str:
    return render_template("wall/open.html", error=error, bare=True)


@pages.post("/wall/open")
@scope.public
def keep() -> ResponseReturnValue:
    secret = request.form.get("token", "").strip()
    if _valid(secret) is None:
        return form("this is no valid wall token: it was mistyped, revoked or never created"), 422
    answer = redirect(url_for("wall.page"), 303)
    answer.set_cookie(
        _cookie(),
        secret,
        max_age=_KEPT_SECONDS,
        secure=current_app.config["SESSION_COOKIE_SECURE"],
        httponly=True,
        samesite="Lax",
    )
    return answer


def _cookie() -> str:
    session_name: str = current_app.config["SESSION_COOKIE_NAME"]
    return session_name.replace("session", "wall")


def _valid(secret: str) -> ApiToken | None:
    try:
        token = ApiToken.of_secret(secret)
    except (NotFound, RowAltered):
        return None
    return token if token.is_wall and token.is_valid else None


def _heartbeats(account_id: int | None) -> list[Check]:
    seen, queue = PeriodicWork.age("worker"), queue_check(account_id)
    worker = f"a worker looked {ago(seen)}" if seen is not None else "no worker has run yet"
    return [clock_check(), Check("workers", f"{worker}; {queue.detail}", queue.found)]
