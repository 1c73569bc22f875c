"""Accounts, users, agents and tokens, managed on the server's command line."""

import sys

import click
from sqlalchemy import func, select
from sqlalchemy.orm import joinedload

from refine import settings
from refine.cli.context import application
from refine.cli.output import LONGEST_LIST, console, table
from refine.errors import InvalidValue
from refine.extensions import db
from refine.llm.clients import warning_about
from refine.models import Account, Agent, ApiToken, User
from refine.models.agent_list import STATES, State
from refine.models.people.user import ROLES
from refine.rules.ids import MAX_ID


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
def account_list() -> None:
    """List all accounts."""
    with application("account list"):
        agents = select(func.count(Agent.id)).where(Agent.account_id == Account.id)
        counted = select(Account, agents.scalar_subquery()).order_by(Account.slug)
        rows = [
            (found.slug, found.name, count, found.time_zone, found.effective_schedule)
            for found, count in db.session.execute(counted)
        ]
        columns = ("slug", "name", "agents", "time zone", "schedule")
        table(columns, rows, empty="no accounts yet; `refine account add NAME` adds one")


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


@click.group()
def agent() -> None:
    """Manage agents."""


@agent.command("add")
@click.argument("name")
@click.option("--account", "slug", required=True, help="The slug of the agent's account.")
@click.option("--model", "model_id", required=True, help="The provider's name for its model.")
def agent_add(name: str, slug: str, model_id: str) -> None:
    """Add the agent NAME and print its id.

    Warns if the provider does not list its model, or lists it without tools.
    """
    with application("agent add"):
        owner = Account.by_slug(slug)
        made = Agent.create(owner, name=name, model_id=model_id, actor={"by": "command line"})
        agent_id, model_id, is_demo = made.id, made.model_id, owner.is_demo
        db.session.commit()
        console.print(str(agent_id))
        # no transaction is open while the provider is asked
        warning = warning_about(model_id, settings.current(), is_demo=is_demo)
        if warning is not None:
            click.echo(f"refine: warning: sessions may fail: {warning}", err=True)


@agent.command("erase")
@click.argument("reference", metavar="AGENT")
@click.option(
    "--for-good", is_flag=True, required=True, help="Confirm that the content cannot come back."
)
def agent_erase(reference: str, for_good: bool) -> None:
    """Destroy AGENT's data key, so that nobody can read its memories and prompts any more.

    Its figures and audit records stay. Backups that hold the key can still be read.
    """
    with application("agent erase"):
        erased = Agent.named(reference)
        erased.erase(by="command line")
        db.session.commit()
        console.print(f"erased {erased.name} (agent {erased.id})")


@agent.command("list")
@click.option("--account", "slug", help="List only agents of this account.")
@click.option("--after", type=click.IntRange(0, MAX_ID), default=0, help="Start after this id.")
def agent_list(slug: str | None, after: int) -> None:
    """List agents with their figures, 50 at a time."""
    with application("agent list"):
        wanted = select(Agent).options(joinedload(Agent.account)).where(Agent.id > after)
        if slug is not None:
            wanted = wanted.where(Agent.account_id == Account.by_slug(slug).id)
        found = db.session.scalars(wanted.order_by(Agent.id).limit(LONGEST_LIST + 1)).all()
        table(
            ("id", "name", "account", "model", "memories", "tokens", "budget", "state"),
            [_agent_row(one) for one in found[:LONGEST_LIST]],
            empty="no agents; `refine agent add NAME --account SLUG --model ID` adds one",
        )
        if len(found) > LONGEST_LIST:
            console.print(f"more: refine agent list --after {found[LONGEST_LIST - 1].id}")


def _agent_row(one: Agent) -> tuple[object, ...]:
    is_over = one.exceeds_budget(one.core_tokens)
    applies: dict[State, bool] = {
        "inactive": not one.active,
        "paused": one.paused,
        "over_budget": is_over,
    }
    state = ", ".join(STATES[each] for each in applies if applies[each]) or "within budget"
    identity = (one.id, one.name, one.account.slug, one.model_id)
    return (*identity, one.core_count, f"{one.core_tokens:,}", f"{one.core_token_budget:,}", state)


@click.group()
def token() -> None:
    """Manage bearer tokens of the HTTP API."""


@token.command("add")
@click.option("--agent", "agent_reference", help="Create a token for this agent (id or name).")
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
