"""Who may come in, and what they may see and do: 404 for other accounts' rows, 403 for refused
actions.
"""

import uuid
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from flask import (
    Blueprint,
    Flask,
    Response,
    abort,
    current_app,
    flash,
    g,
    make_response,
    redirect,
    request,
    session,
    url_for,
)
from flask_login import current_user
from sqlalchemy import ColumnElement, SQLColumnExpression, select, true
from sqlalchemy.orm import contains_eager, joinedload
from sqlalchemy.orm.interfaces import ORMOption

from refine import refusals, request_log, settings
from refine.extensions import csrf, db, login
from refine.models import (
    AccessGrant,
    Account,
    Agent,
    ApiToken,
    AuditLog,
    Delivery,
    RefinementSession,
    SignIn,
    User,
    schema_version,
)
from refine.models.attested import Attested
from refine.models.columns import id_in
from refine.web.links import asked_for

P = ParamSpec("P")
R = TypeVar("R")
# Pages name an agent's account.
WITH_ACCOUNT = (joinedload(Agent.account),)

_Scoped = Account | Agent | AccessGrant | ApiToken | AuditLog | Delivery | User
Scoped = TypeVar("Scoped", bound=_Scoped)

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

areas: list[Blueprint] = []


# -- before every request --------------------------------------------------------------------------


def register(app: Flask) -> None:
    """Not by ``login.init_app``, which hooks into every response, the API's too."""
    app.login_manager = login  # type: ignore[attr-defined]
    app.context_processor(lambda: {"current_user": current_user})
    login.user_loader(_find_valid)


def _find_valid(secret: str) -> SignIn | None:
    """Return a live sign-in, whose user acts from where this request comes from."""
    found = SignIn.find_valid(secret, is_use=not is_refresh())
    if found is not None:
        found.user.client = refusals.client()
        request_log.note(user_id=found.user.id)
    return found


def is_refresh() -> bool:
    """Whether a page asks by itself, which is no use of a sign-in and takes no messages."""
    return request.headers.get("HX-Source") == "main#main"


def area(name: str) -> Blueprint:
    """Begin an area of the dashboard, which is registered with the others: every form of it needs a
    CSRF token, and every page a sign-in except public ones.
    """
    made = Blueprint(name, __name__)
    made.before_request(_require_compatible)
    made.before_request(_refuse_other_sites)
    made.before_request(csrf.protect)
    made.before_request(_require_sign_in)
    areas.append(made)
    return made


def _require_compatible() -> None:
    asks = "_user_id" in session or request.method not in _SAFE_METHODS
    if asks and request.blueprint != "status":
        schema_version.require_compatible()


def _refuse_other_sites() -> None:
    """Refuse to change anything for another site or origin, in addition to the CSRF token."""
    if request.method not in _SAFE_METHODS and not _may_be_own():
        abort(403, "This request came from another site.")


def _may_be_own() -> bool:
    """No page can forge ``Sec-Fetch-Site``; our own forms send the Origin "null"."""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin", "null")
    if site is not None:
        return site in ("same-origin", "none")
    public = urlsplit(settings.current().public_url)._replace(path="").geturl()
    return origin in ("null", f"{request.scheme}://{request.host}", public)


def _require_sign_in() -> Response | None:
    if is_public(request.endpoint) or current_user.is_authenticated:
        return None
    here = asked_for() if request.method in _SAFE_METHODS else ""
    return make_response(redirect(url_for("signing_in.form", next=here or None), 303))


# -- who asks, and for what ------------------------------------------------------------------------


def sign_in() -> SignIn:
    return cast(SignIn, current_user._get_current_object())


def user() -> User:
    """Return who is signed in; RowAltered if their row was changed past Refine."""
    sign_in().require_own("user")
    return sign_in().user


def zone() -> ZoneInfo:
    found: ZoneInfo | None = g.get("zone")
    if found is None:
        found = g.zone = ZoneInfo(user().account.time_zone)
    return found


def account_id() -> int | None:
    if sees_all_accounts():
        return None
    chosen = chosen_account()
    return chosen.id if chosen is not None else user().account_id


def in_scope(of: SQLColumnExpression[Any]) -> ColumnElement[bool]:
    """Return the condition that account ids are of this page, in the order of an index."""
    account = account_id()
    return of == account if account is not None else true()


def chosen_account() -> Account | None:
    """Return the account that the URL names, or None; 404 if the user may not see it."""
    slug = request.args.get("account", "").strip()
    if not slug:
        return None
    if "chosen_account" not in g:
        g.chosen_account = db.session.scalar(select(Account).where(Account.slug == slug))
    return _visible(cast(Account | None, g.chosen_account))


def sees_all_accounts() -> bool:
    return user().site_admin and chosen_account() is None


def account_to_change() -> Account:
    return chosen_account() or user().account


def chosen_agent(text: str) -> Agent | None:
    """Return the agent whose id a text is, or None; 404 if the user may not see it."""
    agent_id = id_in(text)
    return agent_or_404(agent_id) if agent_id is not None else None


def agent_or_404(agent_id: int) -> Agent:
    """Return the agent with that id, if the user may see it; with its account, which pages name."""
    return found_or_404(Agent, agent_id, *WITH_ACCOUNT)


def found_or_404(model: type[Scoped], id_: int | uuid.UUID, *options: ORMOption) -> Scoped:
    is_it = cast(Any, model).id == id_
    found: Scoped | None = db.session.scalar(select(model).where(is_it).options(*options))
    return _visible(found if found is not None and found.id == id_ else None)


def session_or_404(session_id: uuid.UUID) -> RefinementSession:
    found = db.session.scalar(
        select(RefinementSession)
        .join(RefinementSession.agent)
        .options(contains_eager(RefinementSession.agent))  # and a lock does not load it again
        .where(RefinementSession.id == session_id)
    )
    if found is None or (found.id, found.agent_id) != (session_id, found.agent.id):
        abort(404)
    _visible(found.agent)
    return found


def admins_only(view: Callable[P, R]) -> Callable[P, R]:
    return _refusing(view, lambda: not user().may_act)


def password_confirmed(view: Callable[P, R]) -> Callable[P, R]:

    @wraps(view)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        if sign_in().is_confirmed():
            return view(*args, **kwargs)
        if request.method == "POST":
            flash("Nothing was done yet: confirm that it is you, then send the form again.", "warn")
        has_form = current_app.url_map.bind("").test(request.path, "GET")
        back = asked_for() if has_form else None
        return cast(R, redirect(url_for("signing_in.confirm", next=back), 303))

    return guarded


def confirmed_admins_only(view: Callable[P, R]) -> Callable[P, R]:
    return admins_only(password_confirmed(view))


def site_admins_only(view: Callable[P, R]) -> Callable[P, R]:
    return _refusing(view, lambda: not user().site_admin)


def _refusing(view: Callable[P, R], is_refused: Callable[[], bool]) -> Callable[P, R]:
    @wraps(view)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        if is_refused():
            abort(403)
        return view(*args, **kwargs)

    return guarded


def public(view: Callable[P, R]) -> Callable[P, R]:
    view.is_public = True  # type: ignore[attr-defined]
    return view


def is_public(endpoint: str | None) -> bool:
    return getattr(current_app.view_functions.get(endpoint or ""), "is_public", False)


def _visible(found: Scoped | None) -> Scoped:
    if found is None or not user().may_see(
        found.id if isinstance(found, Account) else found.account_id
    ):
        refusals.note_other_tenant(found)
        abort(404)
    row: object = found
    if request.method == "POST" and isinstance(row, Attested):
        row.require_genuine()  # a row that was moved here may be back when it is locked
    return found
