"""Webhooks: where the events of an account are sent."""

import click
from sqlalchemy import select, true
from sqlalchemy.orm import joinedload

from refine.cli.context import Group
from refine.cli.output import Field, print_list
from refine.cli.parameters import account_option, json_option
from refine.errors import NotFound
from refine.extensions import db
from refine.models import Account, Endpoint
from refine.rules.events import KINDS

_LISTED = (
    Field("id", "id"),
    Field("account", "account", "account.slug"),
    Field("url", "url"),
    Field("kinds", "kinds", words=lambda each: str(each.wanted)),
    Field("created_at", "added"),
)
_BY = {"by": "command line"}


@click.group(cls=Group)
def webhook() -> None:
    """Tell other programs what happens: ids and figures alone, never content."""


@webhook.command("add")
@click.argument("url")
@click.option("--account", "slug", required=True, help="The slug of the account.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="By default, all.")
def webhook_add(url: str, slug: str, kinds: tuple[str, ...]) -> str:
    """Post the events of an account to URL, and print the secret that signs them, once.

    Example: refine webhook add https://example.org/refine --account demo --kind session.ended
    """
    _, secret = Endpoint.add(Account.by_slug(slug), url, kinds, by=_BY)
    return secret


@webhook.command("list")
@account_option
@json_option
def webhook_list(slug: str | None, as_json: bool) -> None:
    """List webhooks, newest first."""
    mine = Endpoint.account_id == Account.by_slug(slug).id if slug is not None else true()
    listed = select(Endpoint).where(mine, Endpoint.is_active()).order_by(Endpoint.id.desc())
    found = db.session.scalars(listed.options(joinedload(Endpoint.account))).all()
    print_list(found, _LISTED, as_json=as_json, empty="no webhooks")


@webhook.command("remove")
@click.argument("webhook_id", metavar="ID", type=int)
def webhook_remove(webhook_id: int) -> str:
    """Remove the webhook ID, and what waits for it."""
    if (found := db.session.get(Endpoint, webhook_id)) is None:
        raise NotFound(f"there is no webhook {webhook_id}")
    found.remove(by=_BY)
    return f"removed webhook {webhook_id}"
