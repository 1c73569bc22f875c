"""Memory tasks: reflections on the journal, and extractions from conversations.

``task`` is the noun and its life: queue, claim, end, retry; ``saving`` what the agent may keep;
``scheduling`` who is due, what may be worked on, and what was given up.
"""

from refine.models.runs.task.task import (
    ENDED,
    KINDS,
    MAX_KEPT,
    MAX_WAITING,
    EndStatus,
    Kind,
    MemoryTask,
    ReflectionAlreadyLive,
    Trigger,
)

__all__ = [
    "ENDED",
    "KINDS",
    "MAX_KEPT",
    "MAX_WAITING",
    "EndStatus",
    "Kind",
    "MemoryTask",
    "ReflectionAlreadyLive",
    "Trigger",
]
