"""Locking people and accounts out; on the server, nobody is locked out for ever."""

import click

from refine.cli.context import application
from refine.cli.output import console
from refine.extensions import db
from refine.models import Account, User, locking
from refine.models.people.user import LOCK_REASONS

_who = click.argument("reference", metavar="[USER]", required=False)
_account = click.option("--account", "slug", help="The slug of an account, in place of USER.")


@click.command()
@_who
@_account
@click.option("--reason", type=click.Choice(list(LOCK_REASONS)), required=True)
@click.option("--tokens", is_flag=True, help="Also revoke the account's tokens and webhooks.")
def lock(reference: str | None, slug: str | None, reason: str, tokens: bool) -> None:
    """Lock USER (e-mail address or id) out at once, or everybody of an account.

    Ends sign-ins, links, access to memories and requests for it; an account is also paused.

    Example: refine lock ada@example.org --reason lost_device
    """
    with application("lock"):
        ended = locking.lock(_found(reference, slug), reason, None, ends_tokens=tokens)
        db.session.commit()
        console.print(f"locked; ended: {locking.in_words(ended)}")


@click.command()
@_who
@_account
def unlock(reference: str | None, slug: str | None) -> None:
    """Let USER (e-mail address or id) in again, or those who were locked out with an account.

    What ended stays ended, and an account stays paused.
    """
    with application("unlock"):
        locking.unlock(_found(reference, slug), None)
        db.session.commit()
        console.print("unlocked")


def _found(reference: str | None, slug: str | None) -> User | Account:
    if (reference is None) == (slug is None):
        raise click.UsageError("give USER, or --account SLUG")
    return Account.by_slug(slug) if slug is not None else User.named(reference or "")
