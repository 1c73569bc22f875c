"""The edits of a session as its tool makes them: the session held anew, no commit."""

from collections.abc import Callable
from functools import partial
from typing import Any

from refine.models import Agent, AgentMemory, RefinementSession, SessionEntry
from refine.models.runs.session import editing
from refine.models.runs.session.editing import complete
from tests import factories

__all__ = ["complete", "consolidate", "delete", "deleted_from", "protect", "search", "update"]


def _edit(
    verb: Callable[..., AgentMemory], session: RefinementSession, *args: Any, **fields: Any
) -> AgentMemory:
    return verb(RefinementSession.held(session.id, session.lease_token), *args, **fields)


consolidate = partial(_edit, editing.consolidate)
update = partial(_edit, editing.update)
delete = partial(_edit, editing.delete)
protect = partial(_edit, editing.protect)


def search(
    session: RefinementSession, *asked: Any, retired: bool = False, **between: Any
) -> list[AgentMemory]:
    """Return what a search finds, all of it shown to the agent."""
    ledger = session.agent.ledger
    found = ledger.matching(ledger.retired() if retired else ledger.core(), *asked, **between)
    SessionEntry.show(session, found)
    return found


def deleted_from(agent: Agent, *memories: AgentMemory) -> RefinementSession:
    """An incomplete session that deleted these memories."""
    session = factories.session(agent)
    for memory in memories:
        delete(session, memory.id)
    session.finish("incomplete", "enough")
    return session
