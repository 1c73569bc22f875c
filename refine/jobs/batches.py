"""Serving many agents: a batch in one transaction, so that its statements do not grow with it.

A batch that fails is cut in two, and each half is served in a transaction of its own: one agent's
failure stops no other. A single agent is served again if it was the database that failed.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from sqlalchemy.exc import DBAPIError

from refine.database_errors import database_trouble
from refine.errors import RefineError
from refine.extensions import db, safe_rollback
from refine.outages import may_pass

# All agents of a batch are locked meanwhile: this many take a fraction of a second.
BATCH = 100

Outcome = TypeVar("Outcome")


class Failed(NamedTuple):
    """An agent that could not be served, and why."""

    agent_id: int
    fault: Exception

    @property
    def said(self) -> str:
        """Return ``safe_message`` the fault."""
        return safe_message(self.fault)


def safe_message(fault: Exception) -> str:
    """Return what a fault says, which is only quoted if no content can be in it."""
    if isinstance(fault, DBAPIError) and (trouble := database_trouble(fault)) is not None:
        return f"the database was {trouble}"
    is_ours = isinstance(fault, DBAPIError | RefineError)
    return str(fault.args[0]) if is_ours and fault.args else type(fault).__name__


def in_parts(
    ids: Sequence[int], serve: Callable[[Sequence[int]], Outcome], *, is_last: bool = False
) -> Iterator[Outcome | Failed]:
    """Serve these agents, and commit; yield what ``serve`` returned, once or for each part.

    ``is_last``: a single agent is not served again, whatever fails.
    """
    try:
        served = serve(ids)
        db.session.commit()
    except Exception as fault:
        safe_rollback()
        db.session.connection()  # fails if the database is away: then nobody can be served
        if len(ids) > 1:
            half = len(ids) // 2
            yield from in_parts(ids[:half], serve)
            yield from in_parts(ids[half:], serve)
        elif may_pass(fault) and not is_last:
            yield from in_parts(ids, serve, is_last=True)
        else:
            yield Failed(ids[0], fault)
    else:
        yield served
