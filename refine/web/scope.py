"""Who asks, and what they may see: the one place where that is decided.

A site admin sees every account, any other user their own. What lies outside is not found (404),
so that nobody learns of it; what a user may see but not do is refused (403).
"""

import functools
import uuid
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast
from zoneinfo import ZoneInfo

from flask import abort, g, request
from flask_login import current_user
from sqlalchemy import Select, select

from refine.extensions import db
from refine.models import (
    AccessGrant,
    Account,
    Agent,
    ApiToken,
    AuditLog,
    RefinementSession,
    SignIn,
    User,
)

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_LARGEST_ID = 2**63 - 1
_DIGITS_OF_AN_ID = 19


def sign_in() -> SignIn:
    """Return the sign-in that this request came with."""
    return cast(SignIn, current_user._get_current_object())


def user() -> User:
    """Return who asks."""
    return sign_in().user


def zone() -> ZoneInfo:
    """Return the time zone of this page: that of the user's own account."""
    return ZoneInfo(user().account.time_zone)


def account_ids() -> Select[int]:
    """Return a query for the ids of the accounts that this page is about.

    Those that the user may see; of these the one of the URL's ``account``, if it names one.
    """
    visible = select(Account.id)
    if not user().site_admin:
        return visible.where(Account.id == user().account_id)
    chosen = chosen_account()
    return visible.where(Account.id == chosen.id) if chosen is not None else visible


def chosen_account() -> Account | None:
    """Return the account that the URL names, None where it names none; 404 for one unseen."""
    slug = request.args.get("account", "").strip()
    if not slug:
        return None
    if "chosen_account" not in g:
        g.chosen_account = db.session.scalar(select(Account).where(Account.slug == slug))
    return _visible(cast(Account | None, g.chosen_account), lambda account: account.id)


def account_to_change() -> Account:
    """Return the one account that a page of settings is about: the URL's, else the user's own."""
    return chosen_account() or user().account


def chosen_agent() -> Agent | None:
    """Return the agent that the URL's ``agent`` names by its id; None where it names none."""
    agent_id = chosen_agent_id()
    return agent_or_404(agent_id) if agent_id is not None else None


def chosen_agent_id() -> int | None:
    """Return the id in the URL's ``agent``, seen or not; None where there is none."""
    text = request.args.get("agent", "")
    is_id = text.isascii() and text.isdigit() and len(text) < _DIGITS_OF_AN_ID
    return int(text) if is_id else None


def agent_or_404(agent_id: int) -> Agent:
    """Return the agent of that id, if the user may see it."""
    return _visible(_row(Agent, agent_id), lambda agent: agent.account_id)


def session_or_404(session_id: uuid.UUID) -> RefinementSession:
    """Return the session of that id, if the user may see it."""
    found = db.session.get(RefinementSession, session_id)
    return _visible(found, lambda session: session.agent.account_id)


def grant_or_404(grant_id: uuid.UUID) -> AccessGrant:
    """Return the grant of that id, if the user may see that there is one."""
    found = db.session.get(AccessGrant, grant_id)
    return _visible(found, lambda grant: grant.account_id)


def record_or_404(record_id: int) -> AuditLog:
    """Return the audit record of that id, if the user may see it."""
    return _visible(_row(AuditLog, record_id), lambda record: record.account_id)


def user_or_404(user_id: int) -> User:
    """Return the user of that id, if the user who asks may see them."""
    return _visible(_row(User, user_id), lambda found: found.account_id)


def token_or_404(token_id: int) -> ApiToken:
    """Return the token of that id, if the user may see it."""
    return _visible(_row(ApiToken, token_id), lambda token: token.account_id)


def acting(view: Callable[P, R]) -> Callable[P, R]:
    """Refuse viewers: they see, and do not act."""

    @functools.wraps(view)
    def for_admins(*args: P.args, **kwargs: P.kwargs) -> R:
        if not user().may_act:
            abort(403)
        return view(*args, **kwargs)

    return for_admins


def site_admins(view: Callable[P, R]) -> Callable[P, R]:
    """Refuse whoever does not run the whole platform."""

    @functools.wraps(view)
    def for_site_admins(*args: P.args, **kwargs: P.kwargs) -> R:
        if not user().site_admin:
            abort(403)
        return view(*args, **kwargs)

    return for_site_admins


def public(view: Callable[P, R]) -> Callable[P, R]:
    """Answer without a sign-in. Everything else wants one."""
    view.is_public = True  # type: ignore[attr-defined]
    return view


def _row(model: type[T], id_: int) -> T | None:
    return db.session.get(model, id_) if id_ <= _LARGEST_ID else None


def _visible(found: T | None, account_id_of: Callable[[T], int | None]) -> T:
    if found is None:
        abort(404)
    if not user().site_admin and account_id_of(found) != user().account_id:
        abort(404)
    return found
