"""The edits of a session, as its tool makes them, in the transaction of the test.

Each takes a running session, and returns the memory that it is about; both are as the edit left
them.
"""

from collections.abc import Callable
from typing import Any

from refine.extensions import db
from refine.models import AgentMemory, RefinementSession
from refine.models.ledger.stored import StoredMemory
from refine.models.runs.session import editing
from refine.models.runs.session.editing import complete, search
from refine.models.runs.session.held import HeldSession

__all__ = ["complete", "consolidate", "delete", "protect", "search", "update"]


def consolidate(session: RefinementSession, *args: Any, **fields: Any) -> AgentMemory:
    return _made(editing.consolidate, session, *args, **fields)


def update(session: RefinementSession, *args: Any, **fields: Any) -> AgentMemory:
    return _made(editing.update, session, *args, **fields)


def delete(session: RefinementSession, *args: Any, **fields: Any) -> AgentMemory:
    return _made(editing.delete, session, *args, **fields)


def protect(session: RefinementSession, *args: Any, **fields: Any) -> AgentMemory:
    return _made(editing.protect, session, *args, **fields)


def _made(
    verb: Callable[..., StoredMemory], session: RefinementSession, *args: Any, **fields: Any
) -> AgentMemory:
    held = HeldSession.held(session.id, session.lease_token)
    try:
        memory = verb(held, *args, **fields)
    finally:
        db.session.flush()
        db.session.expire_all()
    return db.session.get_one(AgentMemory, memory.id)
