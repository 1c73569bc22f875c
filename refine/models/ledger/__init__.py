"""What an agent keeps: its ledger of memories, their images and their history."""

from refine.models.ledger.image import (
    Change as Change,
    Image as Image,
    changes_in as changes_in,
    contents_in as contents_in,
    images_in as images_in,
    is_kept as is_kept,
    is_kept_core as is_kept_core,
    recorded_digests as recorded_digests,
    state_digest as state_digest,
    state_of as state_of,
)
from refine.models.ledger.ledger import (
    Composition as Composition,
    ImportedMemory as ImportedMemory,
    Ledger as Ledger,
)
from refine.models.ledger.memory import (
    JOURNAL_SHOWN_FOR as JOURNAL_SHOWN_FOR,
    LOCKS as LOCKS,
    MEMORY_TYPES as MEMORY_TYPES,
    AgentMemory as AgentMemory,
    MemoryOwner as MemoryOwner,
    added as added,
    change_memories as change_memories,
    content_hash as content_hash,
    is_of_kind as is_of_kind,
)
