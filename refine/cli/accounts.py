"""Accounts, their users and tokens; the dashboard lists them."""

import sys

import click

from refine.cli.context import Group, InApplication
from refine.errors import InvalidValue
from refine.models import Account, Agent, ApiToken, Invitation, User, locking
from refine.models.clients.api_token import TokenKind
from refine.models.people.invitation import VALID_FOR
from refine.models.people.user import LOCK_REASONS, ROLES
from refine.models.runs.access.asking_rules import PASSWORD_LINK_WAIT
from refine.models.user_changes import reset_second_factors
from refine.rules.quantities import in_days, in_hours
from refine.web.links import public_url


@click.group(cls=Group)
def account() -> None:
    """Manage accounts (tenants)."""


@account.command("add")
@click.argument("name")
@click.option("--slug", help="Name in URLs and commands; derived from NAME by default.")
def account_add(name: str, slug: str | None) -> str:
    """Add the account NAME and print its slug."""
    return Account.create(name, slug).slug


@click.group(cls=Group)
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
def user_add(email: str, slug: str, role: str, site_admin: bool, password_stdin: bool) -> str:
    """Add a user who signs in with EMAIL and the password from standard input.

    Example: printf '%s' "$PASSWORD" | refine user add ada@example.org --account demo
    --password-stdin
    """
    password = sys.stdin.readline().rstrip("\r\n")
    owner = Account.by_slug(slug)
    made = User.register(
        owner, email, password, role=role, site_admin=site_admin, by="command line"
    )
    return f"{made.email} can sign in ({role}{', site admin' if site_admin else ''})"


@user.command(
    "reset",
    epilog="As with password links from the dashboard, the user cannot request access to memories "
    f"for {in_hours(PASSWORD_LINK_WAIT)} after setting the password.",
)
@click.argument("reference", metavar="USER")
@click.option("--second-factors", is_flag=True, help="Also end the second factors, and sign-ins.")
def user_reset(reference: str, second_factors: bool) -> str:
    """Print a link that lets USER (e-mail address or id) choose a new password.

    It is printed once, works once, and invalidates every earlier link. The old password works until
    then.

    Example: refine user reset ada@example.org
    """
    found = User.named(reference)
    if second_factors:
        found.lock()
        reset_second_factors(found)
    secret = Invitation.issue(found)
    found.record("user_invited", data={"by": "command line"})
    said = f"for {found.email}; the link is shown only now, and works for {in_days(VALID_FOR)}"
    click.echo(f"refine: {said}", err=True)
    return public_url("signing_in.invitation", secret=secret)


_who = click.argument("reference", metavar="[USER]", required=False)
_account = click.option("--account", "slug", help="The slug of an account, in place of USER.")


@click.command(cls=InApplication)
@_who
@_account
@click.option("--reason", type=click.Choice(list(LOCK_REASONS)), required=True, help="Why.")
@click.option("--tokens", is_flag=True, help="Also revoke the account's tokens and webhooks.")
def lock(reference: str | None, slug: str | None, reason: str, tokens: bool) -> str:
    """Lock USER (e-mail address or id) out at once, or everybody of an account.

    Ends sign-ins, links, access to memories and requests for it; an account is also paused.

    Example: refine lock ada@example.org --reason lost_device
    """
    ended = locking.lock(_found(reference, slug), reason, None, ends_tokens=tokens)
    return f"locked; ended: {locking.in_words(ended)}"


@click.command(cls=InApplication)
@_who
@_account
def unlock(reference: str | None, slug: str | None) -> str:
    """Let USER (e-mail address or id) in again, or those who were locked out with an account.

    What ended stays ended, and an account stays paused.
    """
    locking.unlock(_found(reference, slug), None)
    return "unlocked"


def _found(reference: str | None, slug: str | None) -> User | Account:
    if (reference is None) == (slug is None):
        raise click.UsageError("give USER, or --account SLUG")
    return Account.by_slug(slug) if slug is not None else User.named(reference or "")


@click.group(cls=Group)
def token() -> None:
    """Manage tokens of the HTTP API, and of walls."""


@token.command("add")
@click.option(
    "--agent",
    "agent_reference",
    help="Create a token for this agent (id or name).",
)
@click.option("--platform", is_flag=True, help="Create a token that manages an account's agents.")
@click.option("--wall", is_flag=True, help="Create a link to the wall, for a screen in the office.")
@click.option("--account", "slug", help="The slug of the account; a wall shows all without it.")
def token_add(agent_reference: str | None, platform: bool, wall: bool, slug: str | None) -> str:
    """Create a token and print it, of a wall as a link. It cannot be shown again.

    `refine token add --agent NAME`, `refine token add --platform --account SLUG`, or `refine token
    add --wall [--account SLUG]`.
    """
    is_one = [platform, wall, agent_reference is not None].count(True) == 1
    if not is_one or (not wall and platform != (slug is not None)):
        raise click.UsageError("give --agent NAME, --platform with --account SLUG, or --wall")
    agent = Agent.named(agent_reference) if agent_reference is not None else None
    account = Account.by_slug(slug) if slug is not None else None
    account = agent.account if agent is not None else account
    kind: TokenKind = "wall" if wall else "platform"
    _, secret = ApiToken.mint(account=account, agent=agent, kind=kind)
    return f"{public_url('wall.form')}#{secret}" if wall else secret


@token.command("revoke")
@click.argument("secret", metavar="TOKEN")
def token_revoke(secret: str) -> str:
    """Revoke TOKEN, or that of a link; `-` reads it from standard input."""
    given = sys.stdin.readline().strip() if secret == "-" else secret  # noqa: S105
    if not given:
        raise InvalidValue("no token given")
    found = ApiToken.of_secret(given.rpartition("#")[2])
    found.revoke()
    return f"revoked {found.hint}…"
