"""What shells suggest for an unfinished argument: names of agents."""

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from click.shell_completion import CompletionItem
from sqlalchemy import func, select

from refine.cli.context import in_context
from refine.extensions import db
from refine.models import Agent
from refine.settings import Settings, is_installed

# A shell that waits for a suggestion should not wait for a database.
_SECONDS = 1.0
_MAX_SUGGESTED = 50


def agents_like(_context: object, _parameter: object, typed: str) -> list[CompletionItem]:
    """Return the agents whose names begin like this; none if that cannot be asked right now.

    An agent is suggested by its id if its name is another's too, or is more than one word.
    """
    found = _names_like(typed)
    bearers = Counter(name.lower() for _, name in found)
    return [
        CompletionItem(name)
        if bearers[name.lower()] == 1 and name.replace("-", "").isalnum()
        else CompletionItem(str(agent_id), help=name)
        for agent_id, name in found
    ]


def _names_like(typed: str) -> list[tuple[int, str]]:
    """Ask the database, if it is there; no server is started for it."""
    is_like = func.lower(Agent.name).startswith(typed.lower(), autoescape=True)
    named = select(Agent.id, Agent.name).where(is_like)
    ordered = named.order_by(func.lower(Agent.name), Agent.id).limit(_MAX_SUGGESTED)
    try:
        with _at_most(_SECONDS):
            if not is_installed():
                return []
            with in_context(Settings.from_environ()):
                return [(row.id, row.name) for row in db.session.execute(ordered)]
    except Exception:  # whatever it is: a suggestion is not worth an error message
        return []


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
