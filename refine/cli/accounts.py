"""Accounts, their users and tokens, and requests for access to memories."""

import sys
from typing import Any

import click
from sqlalchemy import Select, func, select
from sqlalchemy.orm import joinedload

from refine.cli.context import application
from refine.cli.output import Field, console, print_list
from refine.cli.parameters import Columns, account_option, json_option, limit_option, lists
from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import AccessGrant, Account, Agent, ApiToken, Invitation, User
from refine.models.people.invitation import VALID_FOR
from refine.models.people.user import ROLES
from refine.models.runs.access import STATUSES
from refine.models.runs.access.asking_rules import PASSWORD_LINK_WAIT
from refine.rules.quantities import in_days, in_hours
from refine.web.links import public_url

_ACCOUNTS = (
    Field("id", None, "Account.id"),
    Field("slug", "slug", "Account.slug"),
    Field("name", "name", "Account.name"),
    Field("agents", "agents"),
    Field("time_zone", "time zone", "Account.time_zone"),
    Field("schedule", "schedule", "Account.effective_schedule"),
    Field("paused", None, "Account.paused"),
    Field("next_due_at", None, "Account.next_due_at"),
    Field("monthly_cost_cap_usd", None, "Account.monthly_cost_cap_usd"),
    Field("created_at", None, "Account.created_at"),
)
_USERS = (
    Field("id", "id"),
    Field("email", "e-mail"),
    Field("account", "account", "account.slug"),
    Field("role", "role"),
    Field("site_admin", "site admin"),
    Field("active", "active"),
    Field("has_joined", "joined", lambda user: user.password_hash is not None),
    Field("created_at", "created"),
)


def _state(token: ApiToken) -> str:
    if token.is_valid:
        return "valid"
    return "revoked" if token.is_revoked else "expired"


def _creator(token: ApiToken) -> str:
    return f"{token.minted_by.hint}…" if token.minted_by is not None else "command line"


_TOKENS = (
    Field("id", "id"),
    Field("hint", "starts with"),
    Field("kind", "kind"),
    Field("agent_id"),
    Field("agent", "agent", lambda token: token.agent and token.agent.name),
    Field("account", "account", "account.slug"),
    Field("created_at", "created"),
    Field("created_by", "by", _creator),
    Field("last_used_at", "last used"),
    Field("expires_at", "expires"),
    Field("revoked_at"),
    Field("state", "state", _state),
)
_GRANTS = (
    Field("id", "id"),
    Field("created_at", "requested"),
    Field("user", "user", "user.email"),
    Field("agent_id"),
    Field("agent", "agent", "agent.name"),
    Field("account", "account", "account.slug"),
    Field("reason", "reason"),
    Field("duration_minutes", "minutes"),
    Field("status", "status", "current_status"),
    Field("end_reason", "ended as", "current_end_reason"),
    Field("granted_at", "from"),
    Field("expires_at"),
    Field("ended_at", "until", "current_ended_at"),
)


@click.group()
def account() -> None:
    """Manage accounts (tenants)."""


@account.command("add")
@click.argument("name")
@click.option("--slug", help="Name in URLs and commands; derived from NAME by default.")
def account_add(name: str, slug: str | None) -> None:
    """Add the account NAME and print its slug."""
    with application("account add"):
        made = Account.create(name, slug)
        db.session.commit()
        console.print(made.slug)


@account.command("list")
@json_option
def account_list(as_json: bool) -> None:
    """List all accounts."""
    with application("account list"):
        agents = select(func.count(Agent.id)).where(Agent.account_id == Account.id)
        counted = select(Account, agents.scalar_subquery().label("agents")).order_by(Account.slug)
        print_list(
            db.session.execute(counted).all(),
            _ACCOUNTS,
            as_json=as_json,
            empty="no accounts yet; `refine account add NAME` adds one",
        )


@click.group()
def user() -> None:
    """Manage users of the dashboard."""


@user.command("add")
@click.argument("email")
@click.option("--account", "slug", required=True, help="The slug of the user's account.")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default="admin",
    show_default=True,
    help="A viewer has read-only access; an admin can also make changes.",
)
@click.option("--site-admin", is_flag=True, help="Give access to every account.")
@click.option(
    "--password-stdin",
    is_flag=True,
    required=True,
    help="Read the password from standard input (its first line).",
)
def user_add(email: str, slug: str, role: str, site_admin: bool, password_stdin: bool) -> None:
    """Add a user who signs in with EMAIL and the password from standard input.

    Example: printf '%s' "$PASSWORD" | refine user add ada@example.org --account demo
    --password-stdin
    """
    password = sys.stdin.readline().rstrip("\r\n")
    with application("user add"):
        owner = Account.by_slug(slug)
        made = User.register(
            owner, email, password, role=role, site_admin=site_admin, by="command line"
        )
        db.session.commit()
        console.print(f"{made.email} can sign in ({role}{', site admin' if site_admin else ''})")


@user.command("list")
@account_option
@limit_option
@json_option
def user_list(slug: str | None, limit: int, as_json: bool) -> None:
    """List users and their roles, sorted by e-mail address."""
    with application("user list"):
        users = select(User).options(joinedload(User.account)).order_by(User.email, User.id)
        if slug is not None:
            users = users.where(User.account_id == Account.by_slug(slug).id)
        print_list(
            db.session.scalars(users.limit(limit + 1)).all(),
            _USERS,
            as_json=as_json,
            limit=limit,
            empty="no users; `refine user add EMAIL --account SLUG --password-stdin` adds one",
        )


@user.command(
    "reset",
    epilog="As with password links from the dashboard, the user cannot request access to memories "
    f"for {in_hours(PASSWORD_LINK_WAIT)} after setting the password.",
)
@click.argument("reference", metavar="USER")
def user_reset(reference: str) -> None:
    """Print a link that lets USER (e-mail address or id) choose a new password.

    It is printed once, works once, and invalidates every earlier link. The old password works until
    then.

    Example: refine user reset ada@example.org
    """
    with application("user reset"):
        found = User.named(reference)
        secret = Invitation.issue(found)
        found.record("user_invited", data={"by": "command line"})
        email = found.email
        db.session.commit()
        click.echo(public_url("signing_in.invitation", secret=secret))
        days = in_days(VALID_FOR)
        click.echo(
            f"refine: for {email}; the link is shown only now, and works for {days}", err=True
        )


@click.group()
def token() -> None:
    """Manage bearer tokens of the HTTP API."""


@token.command("add")
@click.option(
    "--agent",
    "agent_reference",
    help="Create a token for this agent (id or name).",
)
@click.option("--platform", is_flag=True, help="Create a token that manages an account's agents.")
@click.option("--account", "slug", help="The slug of the account, with --platform.")
def token_add(agent_reference: str | None, platform: bool, slug: str | None) -> None:
    """Create a token and print it. It cannot be shown again.

    `refine token add --agent NAME` or `refine token add --platform --account SLUG`.
    """
    if platform == (agent_reference is not None) or platform != (slug is not None):
        raise click.UsageError("give either --agent NAME, or --platform with --account SLUG")
    with application("token add"):
        if agent_reference is not None:
            owner = Agent.named(agent_reference)
            _, secret = ApiToken.mint(account=owner.account, agent=owner)
        else:
            _, secret = ApiToken.mint(account=Account.by_slug(slug or ""))
        db.session.commit()
        click.echo(secret)


@token.command("revoke")
@click.argument("secret", metavar="TOKEN")
def token_revoke(secret: str) -> None:
    """Revoke TOKEN; `-` reads it from standard input."""
    given = sys.stdin.readline().strip() if secret == "-" else secret  # noqa: S105
    if not given:
        raise InvalidValue("no token given")
    with application("token revoke"):
        found = ApiToken.of_secret(given)
        found.revoke()
        db.session.commit()
        console.print(f"revoked {found.hint}…")


@token.command("list")
@lists(
    Columns(ApiToken.account_id, ApiToken.agent_id, ApiToken.created_at, ApiToken.id),
    _TOKENS,
    empty="no tokens; `refine token add --agent NAME` creates one",
)
def token_list() -> Select[Any]:
    """List tokens, newest first: prefix, owner, last use.

    The tokens themselves are not stored, only keyed hashes.

    Example: refine token list --agent Wren
    """
    with_names = (ApiToken.agent, ApiToken.account, ApiToken.minted_by)
    return select(ApiToken).options(*map(joinedload, with_names))


@click.group()
def access() -> None:
    """List requests for access to memories; only agents grant them."""


@access.command("list")
@click.option("--status", type=click.Choice(STATUSES), help="Only requests with this status.")
@lists(
    Columns(AccessGrant.account_id, AccessGrant.agent_id, AccessGrant.created_at, AccessGrant.id),
    _GRANTS,
    empty="no requests",
)
def access_list(status: str | None) -> Select[Any]:
    """List requests for access, newest first: who asked which agent, and how it answered.

    Purposes and answers are not shown: they are content.

    Example: refine access list --agent Wren --status granted
    """
    with_names = (AccessGrant.user, AccessGrant.agent, AccessGrant.account)
    asked = select(AccessGrant).options(*map(joinedload, with_names))
    return asked if status is None else asked.where(AccessGrant.current_status == status)
