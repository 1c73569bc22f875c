"""The wall: a square for each account, worst first, for a screen in the office. Its browser keeps
a wall token in a cookie: a link brings it behind "#", where it is in no request, log or Referer.
"""

from collections import defaultdict
from typing import NamedTuple
from zoneinfo import ZoneInfo

from flask import Blueprint, current_app, g, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from flask_login import current_user
from sqlalchemy import func, select, true

from refine import clock
from refine.errors import NotFound, RowAltered
from refine.extensions import db
from refine.health import Check, clock_check, queue_check
from refine.models import Account, Agent, ApiToken, PeriodicWork, attention
from refine.models.agent_list import is_in
from refine.rules.quantities import ago, plural
from refine.web import in_place, scope
from refine.web.words import CAUSES, SHAPES, cause_in_words

pages = Blueprint("wall", __name__)

_KEPT_SECONDS = 365 * 24 * 3600


class Square(NamedTuple):
    name: str
    slug: str
    agents: int
    running: int
    needs: list[tuple[str, str]]

    @property
    def level(self) -> str:
        return self.needs[0][0] if self.needs else "ok"


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


def squares(account_id: int | None) -> list[Square]:
    """Return how each account (or this one) stands, worst first."""
    needs: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for id_, cause, number in attention.by_account(account_id):
        level = CAUSES[cause.partition(":")[0]].level
        needs[id_].append((level, f"{plural(number, 'agent')} {cause_in_words(cause)}"))
    mine = true() if account_id is None else Account.id == account_id
    counts = func.count(Agent.id), func.count().filter(is_in("running"))
    is_late = Account.has_late_slot(clock.now())
    columns = Account.id, Account.name, Account.slug, is_late, *counts
    found = select(*columns).outerjoin(Agent).where(mine).group_by(Account.id)
    levels, made = list(SHAPES), []
    for id_, name, slug, has_late_slot, agents, running in db.session.execute(found):
        late = [("bad", "a slot was missed")] if has_late_slot else []
        made.append(Square(name, slug, agents, running, late + needs[id_]))
    return sorted(made, key=lambda it: (levels.index(it.level), -len(it.needs), it.name))


def _heartbeats(account_id: int | None) -> list[Check]:
    seen, queue = PeriodicWork.age("worker"), queue_check(account_id)
    worker = f"a worker looked {ago(seen)}" if seen is not None else "no worker has run yet"
    return [clock_check(), Check("workers", queue.problem, f"{worker}; {queue.detail}")]
