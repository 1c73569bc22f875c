"""Accounts, their users and tokens; the dashboard lists them."""

import sys

import click

from refine.cli.context import application
from refine.cli.output import console
from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import Account, Agent, ApiToken, Invitation, User
from refine.models.people.invitation import VALID_FOR
from refine.models.people.user import ROLES
from refine.models.runs.access.asking_rules import PASSWORD_LINK_WAIT
from refine.rules.quantities import in_days, in_hours
from refine.web.links import public_url


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
