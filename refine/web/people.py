"""Users and their invitations, accounts, and API tokens."""

from flask import abort, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import func, select
from sqlalchemy.orm import joinedload

from refine import clock, settings
from refine.errors import Refused
from refine.extensions import db
from refine.models import Account, Agent, ApiToken, Invitation, Mail, SignIn, User
from refine.models.people.user import ROLES
from refine.models.user_changes import change_rights, reset_second_factors
from refine.web import scope
from refine.web.forms import done, require_current, shown_again, stored_fields, version
from refine.web.links import public_url, url_in_account
from refine.web.lists import Chosen, page_of, searched

pages = scope.area("people")

_STORED = ("role", "active")


@pages.get("/users")
def listing(**shown: object) -> str:
    chosen = Chosen([searched(User.email, label="E-mail")])
    theirs = SignIn.user_id == User.id, SignIn.is_open(clock.now())
    sign_ins = select(func.count()).select_from(SignIn).where(*theirs).scalar_subquery()
    page = page_of(
        select(User, sign_ins)
        .options(joinedload(User.account))
        .where(scope.in_scope(User.account_id), *chosen.conditions())
        .order_by(func.lower(User.email), User.account_id)
    )
    return render_template(
        "people/page.html",
        page=page,
        users=[row[:2] for row in page.rows],
        chosen=chosen,
        account=scope.account_to_change(),
        drawn_from=lambda user: version(stored_fields(user, _STORED)),
        **shown,
    )


@pages.post("/users")
@scope.confirmed_admins_only
@shown_again(listing)
def invite() -> ResponseReturnValue:
    invited = User.invite(
        scope.account_to_change(),
        request.form.get("email", ""),
        role=request.form.get("role", "viewer"),
        by=scope.user(),
    )
    return _with_link(invited)


@pages.post("/users/<int:user_id>/invitation")
@scope.confirmed_admins_only
def invite_again(user_id: int) -> ResponseReturnValue:
    user = user_to_change(user_id)
    user.lock()
    user.record("user_invited", by=scope.user())
    return _with_link(user)


def _with_link(user: User) -> ResponseReturnValue:
    """Mail a link for a password, which the admin then does not see, or else show it."""
    if settings.current().mail_url is not None:
        Mail.invite(user, clock.now(), by=scope.user())
        return _done(f"A link is on its way to {user.email}. It is sent within a minute.")
    secret = Invitation.issue(user, by=scope.user())
    db.session.commit()
    return listing(link=public_url("signing_in.invitation", secret=secret), invited=user)


@pages.post("/users/<int:user_id>")
@scope.admins_only
@shown_again(lambda user_id, error: listing(error=error))
def update(user_id: int) -> ResponseReturnValue:
    user = user_to_change(user_id)
    if user.id == scope.user().id:
        flash("You cannot change your own role or state: ask another admin.", "error")
        return redirect(url_in_account("people.listing"), 303)
    form, fields = request.form, dict[str, object]()
    if form.get("role") in ROLES:
        fields["role"] = form["role"]
    if "active" in form:
        fields["active"] = form["active"] == "1"
    user.lock_for(scope.user())
    if user.locked_at is not None:
        raise Refused(f"{user.email} is locked: unlock them first")
    require_current(stored_fields(user, _STORED), fields)
    change_rights(user, fields, by=scope.user())
    return _done(f"{user.email}: {user.role}, {'active' if user.active else 'not active'}.")


@pages.post("/users/<int:user_id>/second-factors/reset")
@scope.confirmed_admins_only
def reset_factors(user_id: int) -> ResponseReturnValue:
    user = user_to_change(user_id)
    if user.id == scope.user().id:
        abort(403, "Remove your own second factors on your profile.")
    user.lock_for(scope.user())
    reset_second_factors(user, by=scope.user())
    return _done(f"{user.email} has no second factor now, and was signed out everywhere.")


@pages.post("/users/second-factor")
@scope.confirmed_admins_only
def demand_factor() -> ResponseReturnValue:
    """Demand a second factor of everybody in the account, or no longer."""
    if not scope.user().has_second_factor:
        abort(403, "Only an admin who has a second factor can change this.")
    is_on = request.form.get("required") == "1"
    account = scope.account_to_change()
    account.configure(user=scope.user(), second_factor_required=is_on)
    return _done("A second factor is demanded." if is_on else "A second factor is optional.")


def _done(said: str) -> ResponseReturnValue:
    return done(said, url_in_account("people.listing"))


def user_to_change(user_id: int) -> User:
    user = scope.found_or_404(User, user_id)
    if user.site_admin and not scope.user().site_admin:
        abort(403, "Only a site admin can change a site admin.")
    return user


accounts = scope.area("accounts")


@accounts.get("/accounts", endpoint="listing")
@scope.site_admins_only
def list_accounts(error: Exception | None = None) -> str:
    agents = select(func.count(Agent.id)).where(Agent.account_id == Account.id).scalar_subquery()
    chosen = Chosen([searched(Account.name, Account.slug, label="Name or slug")])
    query = select(Account, agents).where(*chosen.conditions()).order_by(Account.slug)
    page = page_of(query)
    return render_template(
        "accounts/page.html",
        page=page,
        accounts=[row[:2] for row in page.rows],
        chosen=chosen,
        error=error,
    )


@accounts.post("/accounts")
@scope.site_admins_only
@scope.admins_only
@shown_again(list_accounts)
def add() -> ResponseReturnValue:
    slug = request.form.get("slug", "").strip() or None
    account = Account.create(request.form.get("name", ""), slug, user=scope.user())
    said = f"{account.name} was added. You can invite its first admin here."
    return done(said, url_for("people.listing", account=account.slug))


tokens = scope.area("tokens")


@tokens.get("/tokens", endpoint="listing")
def list_tokens() -> str:
    query = (
        select(ApiToken)
        .options(joinedload(ApiToken.agent), joinedload(ApiToken.minted_by))
        .where(scope.in_scope(ApiToken.account_id))
        .order_by(ApiToken.id.desc())
    )
    page = page_of(query)
    return render_template("tokens/page.html", page=page, tokens=[row[0] for row in page.rows])


@tokens.get("/tokens/<int:token_id>/revoke")
@scope.admins_only
def revoke_form(token_id: int) -> str:
    token = scope.found_or_404(ApiToken, token_id)
    minted = select(func.count()).where(
        ApiToken.minted_by_id == token.id, ApiToken.revoked_at.is_(None)
    )
    return render_template("tokens/revoke.html", token=token, minted=db.session.scalar(minted))


@tokens.post("/tokens/<int:token_id>/revoke")
@scope.admins_only
def revoke(token_id: int) -> ResponseReturnValue:
    token = scope.found_or_404(ApiToken, token_id)
    token.revoke(scope.user())
    also = ", and every token that it created" if token.kind == "platform" else ""
    return done(f"Token {token.hint}… revoked{also}.", url_in_account("tokens.listing"))
