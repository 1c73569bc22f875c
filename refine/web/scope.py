"""Who is signed in, and what they may see and do: decided only here.

A site admin sees every account, any other user their own. Anything else is not found (404), so
that nobody learns whether it exists; an action that a user may not take is refused (403).
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
_MAX_ID_DIGITS = 19


def sign_in() -> SignIn:
    """Return the sign-in of this request."""
    return cast(SignIn, current_user._get_current_object())


def user() -> User:
    """Return the signed-in user."""
    return sign_in().user


def zone() -> ZoneInfo:
    """Return the time zone of the page, which is that of the user's account."""
    return ZoneInfo(user().account.time_zone)


def account_ids() -> Select[int]:
    """Return a query for the ids of the accounts that this page shows.

    All that the user may see, or only the one that the URL's ``account`` names.
    """
    visible = select(Account.id)
    if not user().site_admin:
        return visible.where(Account.id == user().account_id)
    chosen = chosen_account()
    return visible.where(Account.id == chosen.id) if chosen is not None else visible


def chosen_account() -> Account | None:
    """Return the account that the URL names, or None; 404 if the user may not see it."""
    slug = request.args.get("account", "").strip()
    if not slug:
        return None
    if "chosen_account" not in g:
        g.chosen_account = db.session.scalar(select(Account).where(Account.slug == slug))
    return _visible(cast(Account | None, g.chosen_account), lambda account: account.id)


def account_to_change() -> Account:
    """Return the account that a settings page changes: the URL's, or the user's own."""
    return chosen_account() or user().account


def chosen_agent() -> Agent | None:
    """Return the agent whose id is the URL's ``agent``, or None; 404 if the user may not see it."""
    agent_id = chosen_agent_id()
    return agent_or_404(agent_id) if agent_id is not None else None


def chosen_agent_id() -> int | None:
    """Return the id in the URL's ``agent``, unchecked; None without one."""
    text = request.args.get("agent", "")
    is_id = text.isascii() and text.isdigit() and len(text) < _MAX_ID_DIGITS
    return int(text) if is_id else None


def agent_or_404(agent_id: int) -> Agent:
    """Return the agent with that id, if the user may see it."""
    return _visible(_row(Agent, agent_id), lambda agent: agent.account_id)


def session_or_404(session_id: uuid.UUID) -> RefinementSession:
    """Return the session with that id, if the user may see it."""
    found = db.session.get(RefinementSession, session_id)
    return _visible(found, lambda session: session.agent.account_id)


def grant_or_404(grant_id: uuid.UUID) -> AccessGrant:
    """Return the grant with that id, if the user may see it."""
    found = db.session.get(AccessGrant, grant_id)
    return _visible(found, lambda grant: grant.account_id)


def record_or_404(record_id: int) -> AuditLog:
    """Return the audit record with that id, if the user may see it."""
    return _visible(_row(AuditLog, record_id), lambda record: record.account_id)


def user_or_404(user_id: int) -> User:
    """Return the user with that id, if the signed-in user may see them."""
    return _visible(_row(User, user_id), lambda found: found.account_id)


def token_or_404(token_id: int) -> ApiToken:
    """Return the token with that id, if the user may see it."""
    return _visible(_row(ApiToken, token_id), lambda token: token.account_id)


def acting(view: Callable[P, R]) -> Callable[P, R]:
    """Refuse viewers, who have read-only access."""

    @functools.wraps(view)
    def for_admins(*args: P.args, **kwargs: P.kwargs) -> R:
        if not user().may_act:
            abort(403)
        return view(*args, **kwargs)

    return for_admins


def site_admins(view: Callable[P, R]) -> Callable[P, R]:
    """Refuse everybody but site admins."""

    @functools.wraps(view)
    def for_site_admins(*args: P.args, **kwargs: P.kwargs) -> R:
        if not user().site_admin:
            abort(403)
        return view(*args, **kwargs)

    return for_site_admins


def public(view: Callable[P, R]) -> Callable[P, R]:
    """Allow the view without a sign-in; every other view requires one."""
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
