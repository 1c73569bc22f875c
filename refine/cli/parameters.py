"""Arguments and options that several commands share."""

import functools
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import FrameType
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem
from sqlalchemy import ColumnElement, ColumnExpressionArgument, func, literal, select

from refine.cli.context import in_context
from refine.extensions import db
from refine.models import Account, Agent, User
from refine.models.people.acting import OTHER_ACTORS
from refine.settings import Settings, is_installed

R = TypeVar("R")
T = TypeVar("T")

_DEFAULT_LIMIT = 50
_MAX_LIMIT = 10_000
_YEARS = range(1970, 9999)

# A shell that waits for a suggestion should not wait for a database.
_COMPLETION_SECONDS = 1.0
_MAX_SUGGESTED = 50


def agents_like(_context: object, _parameter: object, typed: str) -> list[CompletionItem]:
    """Return the agents whose names begin like this; none if that cannot be asked right now.

    An agent is suggested by its id if its name is another's too, or is more than one word.
    """
    found = _asked(_names_like, typed)
    bearers = Counter(name.lower() for _, name in found)
    return [
        CompletionItem(name)
        if bearers[name.lower()] == 1 and name.replace("-", "").isalnum()
        else CompletionItem(str(agent_id), help=name)
        for agent_id, name in found
    ]


def actors_like(_context: object, _parameter: object, typed: str) -> list[CompletionItem]:
    """Return who acts, as records name them, and begins like this: users only if they can be asked.

    A name is one word for shells.
    """
    others = [name.replace(" ", "-") for name in OTHER_ACTORS]
    found = [CompletionItem(name) for name in others if name.startswith(typed)]
    return found + [CompletionItem(email) for email in _asked(_emails_like, typed)]


def _asked(question: Callable[[str], list[T]], typed: str) -> list[T]:
    """Ask the database, if it is there; no server is started for it."""
    try:
        with _at_most(_COMPLETION_SECONDS):
            if not is_installed():
                return []
            with in_context(Settings.from_environ()):
                return question(typed)
    except Exception:  # whatever it is: a suggestion is not worth an error message
        return []


def _names_like(typed: str) -> list[tuple[int, str]]:
    is_like = func.lower(Agent.name).startswith(typed.lower(), autoescape=True)
    named = select(Agent.id, Agent.name).where(is_like)
    ordered = named.order_by(func.lower(Agent.name), Agent.id)
    return [(row.id, row.name) for row in db.session.execute(ordered.limit(_MAX_SUGGESTED))]


def _emails_like(typed: str) -> list[str]:
    is_like = func.lower(User.email).startswith(typed.lower(), autoescape=True)
    emails = select(User.email).where(is_like).distinct()
    return list(db.session.scalars(emails.order_by(User.email).limit(_MAX_SUGGESTED)))


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Time(click.ParamType[datetime]):
    """A day, or a time; in UTC unless it names its zone."""

    name = "time"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> datetime:
        """Return the instant; the first one of a day."""
        try:
            given = datetime.fromisoformat(value)
        except ValueError:
            given = None
        if given is None or given.year not in _YEARS:
            self.fail(
                f"{value!r} is not a valid time; use 2026-03-01 or 2026-03-01T09:30", parameter
            )
        return given if given.tzinfo is not None else given.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Narrowing:
    """What a list is narrowed to by the options of ``narrowed``."""

    account: str | None
    agent: str | None
    since: datetime | None
    until: datetime | None

    def conditions(
        self,
        account_id: ColumnExpressionArgument[Any],
        agent_id: ColumnExpressionArgument[Any],
        at: ColumnExpressionArgument[Any],
    ) -> Iterator[ColumnElement[bool]]:
        """Yield them as SQL conditions; NotFound if there is no such account or agent."""
        if self.account is not None:
            yield literal(Account.by_slug(self.account).id) == account_id
        if self.agent is not None:
            yield literal(Agent.named(self.agent).id) == agent_id
        if self.since is not None:
            yield literal(self.since) <= at
        if self.until is not None:
            yield literal(self.until) > at


def narrowed(command: Callable[..., R]) -> Callable[..., R]:
    """Give a listing command the options that most lists have."""

    @functools.wraps(command)
    def with_narrowing(
        *,
        slug: str | None,
        reference: str | None,
        since: datetime | None,
        until: datetime | None,
        **options: Any,
    ) -> R:
        return command(narrowing=Narrowing(slug, reference, since, until), **options)

    for option in (json_option, limit_option, *_NARROWING):
        with_narrowing = option(with_narrowing)
    return with_narrowing


agent_argument = click.argument("reference", metavar="AGENT", shell_complete=agents_like)
account_option = click.option("--account", "slug", help="Only this account (slug).")
limit_option = click.option(
    "--limit",
    type=click.IntRange(1, _MAX_LIMIT),
    default=_DEFAULT_LIMIT,
    show_default=True,
    help="Maximum number to list.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
_NARROWING = (
    click.option("--until", type=_Time(), help="Only before this date or time (UTC)."),
    click.option("--since", type=_Time(), help="Only from this date or time (UTC)."),
    click.option(
        "--agent",
        "reference",
        metavar="AGENT",
        shell_complete=agents_like,
        help="Only this agent (id or name).",
    ),
    account_option,
)
