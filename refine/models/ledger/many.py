"""Many new memories at once: plain rows by COPY, which takes a fraction of what the ORM takes."""

import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from refine.extensions import copy_rows, db
from refine.models.audit.many import record_many
from refine.models.columns import next_ids
from refine.models.ledger.image import Change
from refine.models.ledger.memory import FIGURES, about_changes
from refine.models.ledger.row import ID_SEQUENCE, MemoryOwner, image_of, row_digest_of
from refine.models.people.recording import to_record
from refine.rules.tokens import token_estimate
from refine.sealing import DataKey, Place


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


class _Row(NamedTuple):
    """What is stored, in the order of ``_COLUMNS``."""

    id: int
    agent_id: int
    memory_type: str
    sealed_content: bytes
    constitutional: bool
    tags: list[str]
    content_hash: str
    token_estimate: int
    discarded_at: datetime | None
    created_at: datetime
    recorded_at: datetime
    updated_at: datetime
    source: str | None
    source_id: str | None
    sealed_extra: bytes | None
    session_id: uuid.UUID | None = None


_COLUMNS = tuple(name.removeprefix("sealed_") for name in (*_Row._fields, "row_digest"))


def add_memories(
    action: str, new: Sequence[NewMemory], *, agent: MemoryOwner, at: datetime, **record: Any
) -> None:
    """Add the memories as of ``at``, with one record; ``record`` goes to ``to_record``.

    In a few statements, however many there are. The caller has locked the agent.
    """
    key = agent.data_key()
    ids = next_ids(ID_SEQUENCE, len(new))
    changes = list[Change]()

    def rows() -> Iterator[Sequence[object]]:
        # sealed while PostgreSQL stores the rows before
        for id_, memory in zip(ids, new, strict=True):
            row = _row(id_, agent_id, memory, key, at)
            changes.append(Change(id_, None, image_of(row, memory.content, memory.extra)))
            yield (*row, row_digest_of(row, key))

    agent_id = agent.id
    copy_rows("agent_memories", _COLUMNS, rows())
    db.session.expire(agent, FIGURES)
    about = about_changes(changes, key, agent.core_tokens, record.pop("data", None))
    record_many([to_record(action, **about, **record)], chain=agent.chain, at=at)


def _row(id_: int, agent_id: int, memory: NewMemory, key: DataKey, at: datetime) -> _Row:
    extra = memory.extra
    return _Row(
        id=id_,
        agent_id=agent_id,
        memory_type=memory.memory_type,
        sealed_content=key.seal(memory.content, Place("agent_memories.content", id_)),
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
        sealed_extra=None if extra is None else key.seal(extra, Place("agent_memories.extra", id_)),
    )
