"""Accounts and users, managed on the server's command line."""

import sys

import click
from sqlalchemy import func, select
from sqlalchemy.orm import joinedload

from refine.cli.context import application
from refine.cli.output import Field, console, print_list
from refine.cli.parameters import account_option, json_option, limit_option
from refine.extensions import db
from refine.models import Account, Agent, Invitation, User
from refine.models.people.invitation import VALID_FOR
from refine.models.people.user import ROLES
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
