"""The latest runs, as pages show them that are about more than runs."""

from collections.abc import Sequence
from typing import Any, Literal

from refine.extensions import db
from refine.models import Agent, MemoryTask, RefinementSession
from refine.web.sessions import listed
from refine.web.tasks import listed_tasks

Kind = type[RefinementSession] | type[MemoryTask]
State = Literal["any", "live", "failed"]


def latest(
    kind: Kind, limit: int, *, state: State = "any", error: str = "", agent: Agent | None = None
) -> Sequence[Any]:
    """Return what lists show of this page's latest runs, newest first.

    ``state``: ``failed`` are those that ended with an error; ``error``: with this one.
    """
    found = listed() if kind is RefinementSession else listed_tasks()
    if state == "live":
        found = found.where(kind.is_live)
    elif state == "failed":
        found = found.where(kind.has_ended_with_error())
    if error:
        found = found.where(kind.error_kind == error)
    if agent is not None:
        found = found.where(kind.agent_id == agent.id)
    return db.session.execute(found.limit(limit)).all()
