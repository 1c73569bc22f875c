"""Tokens of the HTTP API, managed on the server's command line."""

import sys

import click
from sqlalchemy import select
from sqlalchemy.orm import joinedload

from refine.cli.context import application
from refine.cli.output import Field, console, print_list
from refine.cli.parameters import Narrowing, agents_like, narrowed
from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import Account, Agent, ApiToken


def _creator(token: ApiToken) -> str:
    return f"{token.minted_by.hint}…" if token.minted_by is not None else "command line"


def _state(token: ApiToken) -> str:
    if token.is_valid:
        return "valid"
    return "revoked" if token.is_revoked else "expired"


_LISTED = (
    Field("id", lambda row: row.id, "id"),
    Field("hint", lambda row: row.hint, "starts with"),
    Field("kind", lambda row: row.kind, "kind"),
    Field("agent_id", lambda row: row.agent_id),
    Field("agent", lambda token: token.agent.name if token.agent is not None else None, "agent"),
    Field("account", lambda token: token.account.slug, "account"),
    Field("created_at", lambda row: row.created_at, "created (UTC)"),
    Field("created_by", _creator, "by"),
    Field("last_used_at", lambda row: row.last_used_at, "last used (UTC)"),
    Field("expires_at", lambda row: row.expires_at, "expires (UTC)"),
    Field("revoked_at", lambda row: row.revoked_at),
    Field("state", _state, "state"),
)


@click.group()
def token() -> None:
    """Manage bearer tokens of the HTTP API."""


@token.command("add")
@click.option(
    "--agent",
    "agent_reference",
    shell_complete=agents_like,
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
@narrowed
def token_list(narrowing: Narrowing, limit: int, as_json: bool) -> None:
    """List tokens, newest first: prefix, owner, last use.

    The tokens themselves are not stored, only keyed hashes.

    Example: refine token list --agent Wren
    """
    with application("token list"):
        tokens = select(ApiToken).options(
            *(joinedload(each) for each in (ApiToken.agent, ApiToken.account, ApiToken.minted_by))
        )
        tokens = tokens.where(
            *narrowing.conditions(ApiToken.account_id, ApiToken.agent_id, ApiToken.created_at)
        )
        print_list(
            _LISTED,
            db.session.scalars(tokens.order_by(ApiToken.id.desc()).limit(limit + 1)).all(),
            as_json=as_json,
            limit=limit,
            empty="no tokens; `refine token add --agent NAME` creates one",
        )
