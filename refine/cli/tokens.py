"""Tokens of the HTTP API, and requests of users for access to memories."""

import sys
from typing import Any

import click
from sqlalchemy import Select, select
from sqlalchemy.orm import joinedload

from refine.cli.context import application
from refine.cli.output import Field, console
from refine.cli.parameters import Columns, lists
from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import AccessGrant, Account, Agent, ApiToken
from refine.models.runs.access import STATUSES


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
