"""Many memories at once: plain rows and few statements, where objects would take several times as
long.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import select, text

from refine.extensions import db
from refine.extensions.copying import copy_rows
from refine.models.audit import Subject
from refine.models.audit.bulk import record_many
from refine.models.audit.linking import Event
from refine.models.columns import next_ids, one_of_ids
from refine.models.ledger.image import Change, Image
from refine.models.ledger.memory import FIGURES, AgentMemory, about_changes
from refine.models.ledger.row import ID_SEQUENCE, MemoryOwner
from refine.models.ledger.stored import COLUMNS, MEMORIES, StoredMemory
from refine.models.people.recording import to_record
from refine.rules.tokens import token_estimate
from refine.sealing import DataKey, Place

# A removal: the id of the memory that it is about, its changes, and the record's ``data``.
Removal = tuple[int, list[Change], Mapping[str, Any]]

_CONTENT, _EXTRA = "agent_memories.content", "agent_memories.extra"
_ATTRIBUTES = dict(AgentMemory.__mapper__.columns.items())
_NAMES = [column.name for column in _ATTRIBUTES.values()]
_VALUES = attrgetter(*_ATTRIBUTES)
_READ_AT_ONCE = 200


# -- new ones --------------------------------------------------------------------------------------


class NewMemory(NamedTuple):
    """A memory to be added, all of it valid."""

    content: str
    content_hash: str
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
    """Add the memories as of ``at``, with one record; ``record`` goes to ``to_record``.

    The caller has locked the agent.
    """
    agent_id, key = agent.id, agent.data_key()
    ids = next_ids(ID_SEQUENCE, len(new))
    changes = list[Change]()

    def rows() -> Iterator[tuple[Any, ...]]:
        # each is sealed while PostgreSQL stores the ones before
        for id_, memory in zip(ids, new, strict=True):
            stored = _stored(id_, agent_id, memory, key, at)
            image = stored.image_saying(memory.content, memory.extra)
            changes.append(Change(id_, None, image))
            yield _VALUES(stored)

    copy_rows(MEMORIES, _NAMES, rows())
    db.session.expire(agent, FIGURES)
    about = about_changes(changes, key, agent.core_tokens, record.pop("data", None))
    record_many([to_record(action, **about, **record)], chain=agent.chain, at=at)


def _stored(id_: int, agent_id: int, memory: NewMemory, key: DataKey, at: datetime) -> StoredMemory:
    extra = memory.extra
    stored = StoredMemory(
        key,
        id=id_,
        agent_id=agent_id,
        memory_type=memory.memory_type,
        sealed_content=key.seal(memory.content, Place(_CONTENT, id_)),
        constitutional=memory.constitutional,
        tags=memory.tags,
        content_hash=memory.content_hash,
        token_estimate=token_estimate(memory.content),
        discarded_at=memory.discarded_at,
        created_at=memory.created_at,
        recorded_at=at,
        updated_at=at,
        source=memory.source,
        source_id=memory.source_id,
        sealed_extra=None if extra is None else key.seal(extra, Place(_EXTRA, id_)),
        session_id=None,
    )
    stored.sign()
    return stored


# -- existing ones ---------------------------------------------------------------------------------


def core_memories(agent: MemoryOwner) -> Iterator[StoredMemory]:
    """Yield the agent's kept core memories, in the order of ``Ledger.core``.

    They are fetched in parts, so that thousands do not take megabytes in each session.
    The transaction must stay open meanwhile.
    """
    db.session.flush()
    mine = select(*COLUMNS).where(AgentMemory.agent_id == agent.id, AgentMemory.is_kept_core)
    key = agent.data_key()
    in_order = mine.order_by(AgentMemory.created_at, AgentMemory.id)
    for row in db.session.execute(in_order.execution_options(yield_per=_READ_AT_ONCE)):
        yield StoredMemory.of(row, key)


def lock_memories(agent: MemoryOwner, ids: Iterable[int]) -> dict[int, StoredMemory]:
    """Return those of the agent's memories by id, locked in order of id.

    RowAltered if one of them was changed outside the application: a change would sign it.
    """
    db.session.flush()
    key = agent.data_key()
    mine = select(*COLUMNS).where(MEMORIES.c.agent_id == agent.id, MEMORIES.c.id == one_of_ids(ids))
    found = db.session.execute(mine.order_by(MEMORIES.c.id).with_for_update())
    memories = [StoredMemory.of(row, key) for row in found]
    for memory in memories:
        memory.require_genuine(key)
    return {memory.id: memory for memory in memories}


def discard_in_turn(
    action: str,
    removals: Iterable[Removal],
    *,
    agent: MemoryOwner,
    locked: Mapping[int, StoredMemory],
    session_id: uuid.UUID,
    at: datetime,
) -> None:
    """Discard and tag locked memories, each removal with its record.

    A removal finds the memories as those before it left them.
    """
    key, mass = agent.data_key(), agent.core_tokens
    events, images = [], dict[int, Image]()
    for subject_id, changes, data in removals:
        about = about_changes(changes, key, mass, data)
        subject: tuple[Subject, object] = ("AgentMemory", subject_id)
        events.append(Event(action, session_id=session_id, subject=subject, **about))
        mass = about["data"]["mass_after"]
        images |= {change.memory_id: change.after for change in changes}
    if events:
        record_many(events, chain=agent.chain, at=at)
        _write([locked[id_] for id_ in images], images, at)
        db.session.expire(agent, FIGURES)


# Tags as one text each: arrays of arrays cannot differ in length.
_DISCARDED = text("""
UPDATE agent_memories
SET discarded_at = changed.discarded_at, tags = string_to_array(changed.tags, ','),
  updated_at = changed.updated_at, row_digest = changed.row_digest
FROM unnest(
  CAST(:ids AS bigint[]), CAST(:discarded AS timestamptz[]), CAST(:tags AS text[]),
  CAST(:updated AS timestamptz[]), CAST(:digests AS text[])
) AS changed (id, discarded_at, tags, updated_at, row_digest)
WHERE agent_memories.id = changed.id
""")


def _write(memories: Sequence[StoredMemory], images: Mapping[int, Image], at: datetime) -> None:
    for memory in memories:
        memory.apply(images[memory.id], at)
        memory.sign()
    db.session.execute(
        _DISCARDED,
        {
            "ids": [memory.id for memory in memories],
            "discarded": [memory.discarded_at for memory in memories],
            "tags": [",".join(memory.tags) for memory in memories],
            "updated": [memory.updated_at for memory in memories],
            "digests": [memory.row_digest for memory in memories],
        },
    )
