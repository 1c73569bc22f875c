"""Thousands of new memories at once."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from refine.extensions import db
from refine.models.attested import copy_signed
from refine.models.audit import AuditLog, Event
from refine.models.ledger.image import Change
from refine.models.ledger.memory import FIGURES, AgentMemory, MemoryOwner, about_changes


class NewMemory(NamedTuple):
    """A memory to be added, all of it valid."""

    content: str
    memory_type: str
    tags: list[str]
    constitutional: bool
    created_at: datetime
    discarded_at: datetime | None
    source: str
    source_id: str
    extra: str | None


def add_memories(
    action: str, new: Sequence[NewMemory], *, agent: MemoryOwner, at: datetime, **record: Any
) -> None:
    """Add the memories as of ``at``, with one record; ``record`` goes to ``Event``.

    The caller has locked the agent.
    """
    db.session.flush()
    # nothing can be asked of the database during a COPY
    ids, key, changes = AgentMemory.next_ids(len(new)), agent.data_key(), list[Change]()

    def memories() -> Iterator[AgentMemory]:
        # each is sealed while PostgreSQL stores the ones before
        for id_, fields in zip(ids, new, strict=True):
            dates = {"recorded_at": at, "updated_at": at}
            memory = AgentMemory(agent=agent, id=id_, **dates, **fields._asdict())
            changes.append(Change(id_, None, memory.image()))
            yield memory

    copy_signed(AgentMemory, memories(), key)
    db.session.expire(agent, FIGURES)
    about = about_changes(changes, key, agent.core_tokens, record.pop("data", None))
    AuditLog.record_all([(agent.chain, [Event(action, **about, **record)])], at=at)
