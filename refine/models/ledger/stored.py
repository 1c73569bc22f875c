"""Memories read and written as plain rows, where entities would cost more than the statements."""

from collections.abc import Collection, Sequence
from typing import Any, Self, cast

from sqlalchemy import Table, bindparam, insert, text

from refine.models.columns import array
from refine.models.ledger.kept import is_kept_core
from refine.models.ledger.memory import AgentMemory
from refine.models.ledger.values import MemoryValues
from refine.sealing import DataKey

MEMORIES = cast(Table, AgentMemory.__table__)
_BY_ATTRIBUTE = dict(AgentMemory.__mapper__.columns.items())
# What a query for ``StoredMemory.of`` begins with.
COLUMNS = [column.label(attribute) for attribute, column in _BY_ATTRIBUTE.items()]

# The part of a statement that writes what an edit can alter of memories: see ``altered``.
ALTERED = (
    text("""
UPDATE agent_memories
SET content = changed.content, content_hash = changed.content_hash,
  token_estimate = changed.token_estimate, constitutional = changed.constitutional,
  discarded_at = changed.discarded_at, updated_at = changed.updated_at,
  row_digest = changed.row_digest
FROM unnest(
  CAST(:changed_id AS bigint[]), CAST(:changed_sealed_content AS bytea[]),
  CAST(:changed_content_hash AS text[]), CAST(:changed_token_estimate AS integer[]),
  CAST(:changed_constitutional AS boolean[]), CAST(:changed_discarded_at AS timestamptz[]),
  CAST(:changed_updated_at AS timestamptz[]), CAST(:changed_row_digest AS text[])
) AS changed (
  id, content, content_hash, token_estimate, constitutional, discarded_at, updated_at, row_digest
)
WHERE agent_memories.id = changed.id
""")
    .columns()
    .cte("altered")
)
_ALTERED = (
    "id",
    "sealed_content",
    "content_hash",
    "token_estimate",
    "constitutional",
    "discarded_at",
    "updated_at",
    "row_digest",
)
# The part that adds one, kept and made by a session: see ``added``.
_ADDED = _BY_ATTRIBUTE.keys() - {"discarded_at", "source", "source_id", "sealed_extra"}
ADDED = (
    insert(MEMORIES)
    .values({_BY_ATTRIBUTE[name].name: bindparam(f"added_{name}") for name in _ADDED})
    .cte("added")
)


class StoredMemory(MemoryValues):
    """One memory of an agent whose key is known."""

    def __init__(self, key: DataKey, **values: Any) -> None:
        self._key = key
        vars(self).update(values)

    @classmethod
    def of(cls, row: Sequence[Any], key: DataKey) -> Self:
        """Return the memory that begins a row of a query for ``COLUMNS``."""
        memory = cls(key)
        vars(memory).update(zip(_BY_ATTRIBUTE, row, strict=False))
        return memory

    @classmethod
    def new(cls, key: DataKey, *, content: str, **values: Any) -> Self:
        """Return a new core memory, not stored yet."""
        nothing = dict.fromkeys(_BY_ATTRIBUTE)
        kind = {"memory_type": "core", "constitutional": False, "updated_at": values["recorded_at"]}
        memory = cls(key, **{**nothing, **kind, **values})
        memory.content = content
        return memory

    def data_key(self) -> DataKey:
        """Return the agent's key."""
        return self._key

    @property
    def is_kept_core(self) -> bool:
        """Whether this is a core memory that was not discarded."""
        return is_kept_core(self.memory_type, self.discarded_at)

    def _is_changed(self) -> bool:
        return True


def altered(memories: Collection[StoredMemory]) -> dict[str, Any]:
    """Return the parameters of ``ALTERED`` for memories as they are to be; sign them."""
    for memory in memories:
        memory.sign()
    return {
        f"changed_{name}": array([getattr(each, name) for each in memories]) for name in _ALTERED
    }


def added(memory: StoredMemory) -> dict[str, Any]:
    """Return the parameters of ``ADDED`` for a new memory; sign it."""
    memory.sign()
    return {f"added_{name}": getattr(memory, name) for name in _ADDED}
