"""What shells suggest for an unfinished argument: names of agents and users."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from click.shell_completion import CompletionItem
from sqlalchemy import func, select

from refine.cli.context import in_context
from refine.extensions import db
from refine.models import Agent, User
from refine.models.people.acting import OTHER_ACTORS
from refine.settings import Settings, is_installed

T = TypeVar("T")

# A shell that waits for a suggestion should not wait for a database.
_SECONDS = 1.0
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
    """Return actors, as records name them, that begin like this: users only if they can be asked.

    A name is one word for shells.
    """
    others = [name.replace(" ", "-") for name in OTHER_ACTORS]
    found = [CompletionItem(name) for name in others if name.startswith(typed)]
    return found + [CompletionItem(email) for email in _asked(_emails_like, typed)]


def _asked(question: Callable[[str], list[T]], typed: str) -> list[T]:
    """Ask the database, if it is there; no server is started for it."""
    try:
        with _at_most(_SECONDS):
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
