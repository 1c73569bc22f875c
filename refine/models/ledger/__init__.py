"""What an agent keeps: its ledger of memories, their images and their history."""

from refine.models.ledger.image import (
    Change,
    Image,
    changes_in,
    contents_in,
    images_in,
    is_kept,
    is_kept_core,
    recorded_digests,
    state_digest,
    state_of,
)
from refine.models.ledger.ledger import Composition, ImportedMemory, Ledger
from refine.models.ledger.memory import (
    JOURNAL_SHOWN_FOR,
    LOCKS,
    MEMORY_TYPES,
    AgentMemory,
    MemoryOwner,
    change_memories,
    content_hash,
    is_of_kind,
)

__all__ = [
    "JOURNAL_SHOWN_FOR",
    "LOCKS",
    "MEMORY_TYPES",
    "AgentMemory",
    "Change",
    "Composition",
    "Image",
    "Ledger",
    "MemoryOwner",
    "ImportedMemory",
    "change_memories",
    "changes_in",
    "content_hash",
    "contents_in",
    "images_in",
    "is_kept",
    "is_kept_core",
    "is_of_kind",
    "recorded_digests",
    "state_digest",
    "state_of",
]
