"""Arguments and options that several commands share, and the command that lists rows."""

import functools
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click
from sqlalchemy import ColumnElement, Select, literal

from refine.cli.context import application
from refine.cli.output import Field, print_list
from refine.extensions import db
from refine.models import Account, Agent

_TIME = click.DateTime(
    ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M%z", "%Y-%m-%dT%H:%M:%S%z"]
)

agent_argument = click.argument("reference", metavar="AGENT")
account_option = click.option("--account", "slug", help="Only this account (slug).")
limit_option = click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="Maximum number to list.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
_LIST_OPTIONS = (
    json_option,
    limit_option,
    click.option("--until", type=_TIME, help="Only before this date or time (UTC)."),
    click.option("--since", type=_TIME, help="Only from this date or time (UTC)."),
    click.option("--agent", "reference", metavar="AGENT", help="Only this agent (id or name)."),
    account_option,
)


class Columns(NamedTuple):
    account_id: Any
    agent_id: Any
    at: Any
    id: Any


def lists(
    columns: Columns, fields: Sequence[Field], *, empty: str
) -> Callable[[Callable[..., Select[Any]]], Callable[..., None]]:
    """Make a command of a function that returns a query: it narrows, sorts and prints its rows."""

    def decorate(query: Callable[..., Select[Any]]) -> Callable[..., None]:
        @functools.wraps(query)
        def command(*, limit: int, as_json: bool, **options: Any) -> None:
            with application(query.__name__.replace("_", " ")):
                narrowed = list(_narrowing(columns, options))
                wanted = query(**options).where(*narrowed)
                newest = wanted.order_by(columns.at.desc(), columns.id.desc()).limit(limit + 1)
                found = db.session.scalars(newest).all()
                print_list(found, fields, as_json=as_json, limit=limit, empty=empty)

        for option in _LIST_OPTIONS:
            command = option(command)
        return command

    return decorate


def _narrowing(columns: Columns, options: dict[str, Any]) -> Iterator[ColumnElement[bool]]:
    """Take the common options out; NotFound if there is no such account or agent."""
    slug, reference = options.pop("slug"), options.pop("reference")
    since, until = options.pop("since"), options.pop("until")
    if slug is not None:
        yield literal(Account.by_slug(slug).id) == columns.account_id
    if reference is not None:
        yield literal(Agent.named(reference).id) == columns.agent_id
    if since is not None:
        yield literal(_in_utc(since)) <= columns.at
    if until is not None:
        yield literal(_in_utc(until)) > columns.at


def _in_utc(given: datetime) -> datetime:
    return given if given.tzinfo is not None else given.replace(tzinfo=UTC)
